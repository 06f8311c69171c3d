// Calling-context trees as columns: parents before children, costs exclusive to each node.

import type { Block, Column } from './unpack'

export interface TreeExtra {
  strings: string[]
  kinds: string[]
  phases: string[]
  metrics: string[]
  views: Record<string, { nodes: number; total: number; truncated: number }>
  frames: boolean
  steps: number[]
  /** Lines around frames, where the page was made with them: `[first, line, lines]` by row of `strings`. */
  source?: { excerpts: Record<string, [number, number, string[]]>; omitted: Record<string, number> }
}

export interface TreeView {
  parent: Int32Array
  kind: Column
  phase: Column
  name: Column
  detail: Column
  strings: string[]
  /** Inclusive values by metric. */
  total: Record<string, Float64Array>
  /** Exclusive values by metric. */
  self: Record<string, Column>
  children: number[][]
  roots: number[]
}

export function treeView(block: Block<TreeExtra>, key: string): TreeView {
  const c = block.columns
  const parent = Int32Array.from(c[`${key}.parent`])
  const self: Record<string, Column> = {}
  const total: Record<string, Float64Array> = {}
  for (const metric of block.extra.metrics) {
    self[metric] = c[`${key}.${metric}`]
    total[metric] = subtotals(parent, self[metric])
  }
  return {
    parent,
    kind: c[`${key}.kind`],
    phase: c[`${key}.phase`],
    name: c[`${key}.name`],
    detail: c[`${key}.detail`],
    strings: block.extra.strings,
    self,
    total,
    ...childLists(parent),
  }
}

export function subtotals(parent: Int32Array, self: ArrayLike<number>): Float64Array {
  const total = Float64Array.from(self)
  for (let i = parent.length - 1; i >= 0; i--) if (parent[i] >= 0) total[parent[i]] += total[i]
  return total
}

export function childLists(parent: Int32Array): { children: number[][]; roots: number[] } {
  const children: number[][] = Array.from({ length: parent.length }, () => [])
  const roots: number[] = []
  parent.forEach((up, i) => {
    if (up < 0) roots.push(i)
    else children[up].push(i)
  })
  return { children, roots }
}

export const labelOf = (view: TreeView, node: number): string => view.strings[view.name[node]] ?? ''
export const detailOf = (view: TreeView, node: number): string => view.strings[view.detail[node]] ?? ''

/**
 * Everything that calls, or is called by, nodes of one name, merged by name: the two halves of a sandwich view.
 * Weights are the inclusive values of the occurrences; a recursive occurrence counts once.
 */
export function sandwich(view: TreeView, nameRow: number, metric: string): { callers: Merged; callees: Merged } {
  const total = view.total[metric]
  const callers = merged(nameRow, -1)
  const callees = merged(nameRow, -1)
  for (let node = 0; node < view.parent.length; node++) {
    if (view.name[node] !== nameRow || insideSame(view, node, nameRow)) continue
    callers.value += total[node]
    callers.kind = callees.kind = view.kind[node]
    let at = callers
    for (let up = view.parent[node]; up >= 0; up = view.parent[up]) {
      at = childOf(at, view.name[up], view.kind[up])
      at.value += total[node]
    }
    descend(view, node, callees, total)
  }
  return { callers, callees }
}

export interface Merged {
  name: number
  kind: number
  value: number
  children: Map<number, Merged>
}

const merged = (name: number, kind: number): Merged => ({ name, kind, value: 0, children: new Map() })

function childOf(of: Merged, name: number, kind: number): Merged {
  let child = of.children.get(name)
  if (!child) {
    child = merged(name, kind)
    of.children.set(name, child)
  }
  return child
}

function descend(view: TreeView, node: number, into: Merged, total: Float64Array): void {
  // A stack of its own: a calling context may be thousands of frames deep.
  const stack: [number, Merged][] = [[node, into]]
  for (let next = stack.pop(); next; next = stack.pop()) {
    const [at, place] = next
    place.value += total[at]
    for (const child of view.children[at]) stack.push([child, childOf(place, view.name[child], view.kind[child])])
  }
}

function insideSame(view: TreeView, node: number, nameRow: number): boolean {
  for (let up = view.parent[node]; up >= 0; up = view.parent[up]) if (view.name[up] === nameRow) return true
  return false
}
