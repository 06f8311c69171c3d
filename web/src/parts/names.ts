// Short names that tell kernels apart: templates of one kernel differ only deep inside their full names.

const SNIPPET = 36

/**
 * What each full name is called where there is little room. Full names that share a short form get the part of the full
 * name where it first differs from its nearest neighbour.
 */
export function distinctNames(names: string[], shortOf: (name: string) => string): Map<string, string> {
  const groups = new Map<string, string[]>()
  for (const name of new Set(names)) {
    const short = shortOf(name)
    const group = groups.get(short)
    if (group) group.push(name)
    else groups.set(short, [name])
  }
  const labels = new Map<string, string>()
  for (const [short, group] of groups) {
    const sorted = [...group].sort()
    sorted.forEach((name, i) => {
      if (group.length === 1) {
        labels.set(name, short)
        return
      }
      // In sorted order the name that agrees longest with this one stands beside it.
      const shared = Math.max(common(name, sorted[i - 1] ?? ''), common(name, sorted[i + 1] ?? ''))
      const rest = name.slice(wordStart(name, shared))
      labels.set(name, `${short} …${rest.length > SNIPPET ? `${rest.slice(0, SNIPPET)}…` : rest}`)
    })
  }
  return labels
}

function common(a: string, b: string): number {
  let i = 0
  while (i < a.length && i < b.length && a[i] === b[i]) i++
  return i
}

function wordStart(text: string, at: number): number {
  let start = Math.min(at, text.length)
  while (start > 0 && at - start < SNIPPET / 2 && /\w/.test(text[start - 1])) start--
  return start
}
