import { describe, expect, it } from 'vitest'
import { fromBase64, inflate, unpack, unpackBase64 } from '../src/data/unpack'
import packed from './packed.json'

describe('unpack', () => {
  it('reads what lanewise/show/page/packing.py wrote', async () => {
    const { columns, extra } = await unpackBase64<{ names: string[] }>(packed.base64)
    for (const [name, values] of Object.entries(packed.columns)) expect([...columns[name]], name).toEqual(values)
    expect(extra.names).toEqual(packed.extra.names)
  })

  it('fails on a broken stream instead of returning nothing', async () => {
    await expect(inflate(fromBase64('bm90IHpsaWI='))).rejects.toThrow()
    expect(() => unpack(new Uint8Array([255, 0, 0, 0, 123]))).toThrow()
  })
})
