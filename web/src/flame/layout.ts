// Trees as boxes: where each node lies, in shares of the whole width.

import type { DiffTree } from '../data/diff'
import { detailOf, labelOf, type Merged, type TreeView } from '../data/tree'

export interface Box {
  /** Node of the tree, or -1 in a merged one. */
  node: number
  /** Row of the strings. */
  name: number
  label: string
  detail: string
  kind: number
  depth: number
  from: number
  to: number
  value: number
  /** Values of two runs, where two are compared. */
  change?: { a: number; b: number }
}

/** Boxes narrower than this share of the width are not laid out. */
const NARROWEST = 1 / 4000

/** The subtree of `focus` (the whole tree for -1) below its ancestors, the most expensive children first. */
export function boxesOf(view: TreeView, metric: string, focus: number): Box[] {
  const total = view.total[metric]
  const boxes: Box[] = []
  const above: number[] = []
  for (let at = focus; at >= 0; at = view.parent[at]) above.unshift(at)
  above.pop()
  for (const [depth, node] of above.entries()) boxes.push(box(view, node, depth, 0, 1, total[node]))
  const starts = focus >= 0 ? [focus] : view.roots
  const whole = starts.reduce((sum, node) => sum + Math.max(0, total[node]), 0)
  if (whole <= 0) return boxes
  const stack: [number, number, number, number][] = []
  const spread = (nodes: readonly number[], depth: number, from: number, to: number, sum: number) => {
    let x = from
    for (const node of [...nodes].sort((a, b) => total[b] - total[a])) {
      const width = (Math.max(0, total[node]) / sum) * (to - from)
      if (width < NARROWEST) break
      stack.push([node, depth, x, x + width])
      x += width
    }
  }
  spread(starts, above.length, 0, 1, whole)
  for (let next = stack.pop(); next; next = stack.pop()) {
    const [node, depth, from, to] = next
    boxes.push(box(view, node, depth, from, to, total[node]))
    if (total[node] > 0) spread(view.children[node], depth + 1, from, to, total[node])
  }
  return boxes
}

function box(view: TreeView, node: number, depth: number, from: number, to: number, value: number): Box {
  return {
    node,
    name: view.name[node],
    label: labelOf(view, node),
    detail: detailOf(view, node),
    kind: view.kind[node],
    depth,
    from,
    to,
    value,
  }
}

export function boxesOfMerged(root: Merged, strings: string[]): Box[] {
  const boxes: Box[] = []
  const stack: [Merged, number, number, number][] = [[root, 0, 0, 1]]
  for (let next = stack.pop(); next; next = stack.pop()) {
    const [node, depth, from, to] = next
    boxes.push({
      node: -1,
      name: node.name,
      label: strings[node.name] ?? '',
      detail: '',
      kind: node.kind,
      depth,
      from,
      to,
      value: node.value,
    })
    let x = from
    for (const child of [...node.children.values()].sort((a, b) => b.value - a.value)) {
      const width = node.value > 0 ? (child.value / node.value) * (to - from) : 0
      if (width < NARROWEST) break
      stack.push([child, depth + 1, x, x + width])
      x += width
    }
  }
  return boxes
}

/** The tree of two runs: as wide as both together, so that what vanished has a place, too. */
export function diffBoxes(tree: DiffTree, metric: string, focus: number): Box[] {
  const [a, b] = [tree.a[metric], tree.b[metric]]
  const both = Float64Array.from(a, (value, i) => value + b[i])
  const view = { ...tree, phase: tree.kind, total: { both }, self: {} } as unknown as TreeView
  return boxesOf(view, 'both', focus).map((box) => ({ ...box, change: { a: a[box.node], b: b[box.node] } }))
}

export const depthOf = (boxes: readonly Box[]): number => boxes.reduce((most, b) => Math.max(most, b.depth), 0) + 1
