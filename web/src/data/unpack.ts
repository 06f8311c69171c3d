// The browser's half of lanewise/show/page/packing.py: base64 -> zlib -> header and columns.

export type Column = Float64Array | Float32Array | Uint32Array | Uint16Array | Uint8Array | Int32Array

export interface Block<E> {
  columns: Record<string, Column>
  extra: E
}

interface Head {
  name: string
  n: number
  bytes: number
  float?: boolean
  delta?: boolean
  zigzag?: boolean
}

export async function unpackBase64<E>(text: string): Promise<Block<E>> {
  return unpack<E>(await inflate(fromBase64(text)))
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const modern = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }
  if (modern.fromBase64) return modern.fromBase64(text)
  const binary = atob(text)
  const bytes = new Uint8Array(binary.length)
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i)
  return bytes
}

export async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

export function unpack<E>(raw: Uint8Array): Block<E> {
  const size = raw[0] | (raw[1] << 8) | (raw[2] << 16) | (raw[3] << 24)
  const header = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + size))) as { columns: Head[]; extra: E }
  const columns: Record<string, Column> = {}
  let at = 4 + size
  for (const head of header.columns) {
    const planes = raw.subarray(at, at + head.n * head.bytes)
    at += planes.length
    columns[head.name] = head.float ? floats(planes, head) : integers(planes, head)
  }
  return { columns, extra: header.extra }
}

function floats(planes: Uint8Array, head: Head): Column {
  const bytes = new Uint8Array(planes.length)
  for (let plane = 0; plane < head.bytes; plane++)
    for (let i = 0, from = plane * head.n; i < head.n; i++) bytes[i * head.bytes + plane] = planes[from + i]
  return head.bytes === 4 ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer)
}

function integers(planes: Uint8Array, head: Head): Column {
  const { n } = head
  if (!head.delta && !head.zigzag && head.bytes === 1) return planes.slice()
  const narrow = !head.delta && head.bytes < 8
  const out: Column = !narrow
    ? new Float64Array(n)
    : head.zigzag
      ? new Int32Array(n)
      : head.bytes === 2
        ? new Uint16Array(n)
        : new Uint32Array(n)
  let sum = 0
  for (let i = 0; i < n; i++) {
    let value = planes[i]
    for (let plane = 1, scale = 256; plane < head.bytes; plane++, scale *= 256) value += planes[plane * n + i] * scale
    if (head.zigzag) value = value % 2 === 0 ? value / 2 : -(value + 1) / 2
    if (head.delta) {
      sum += value
      value = sum
    }
    out[i] = value
  }
  return out
}
