import { describe, expect, it } from 'vitest'
import { childLists, sandwich, subtotals, type TreeView } from '../src/data/tree'
import { boxesOf } from '../src/flame/layout'

//  main -> a -> k(3)
//       -> b -> a -> k(5)
const parent = Int32Array.from([-1, 0, 1, 0, 3, 4])
const self = Float64Array.from([0, 0, 3, 0, 0, 5])
const view: TreeView = {
  parent,
  kind: Uint8Array.from([0, 1, 2, 1, 1, 2]),
  phase: new Uint8Array(6),
  name: Uint32Array.from([0, 1, 2, 3, 1, 2]),
  detail: Uint32Array.from([4, 4, 4, 4, 4, 4]),
  strings: ['main', 'a', 'k', 'b', ''],
  self: { device: self },
  total: { device: subtotals(parent, self) },
  ...childLists(parent),
}

describe('trees', () => {
  it('add up subtrees', () => {
    expect([...view.total.device]).toEqual([8, 3, 3, 5, 5, 5])
  })

  it('show one name from both sides', () => {
    const { callers, callees } = sandwich(view, 1, 'device')
    expect(callers.value).toBe(8)
    expect(callees.value).toBe(8)
    expect([...callers.children.values()].map((c) => [view.strings[c.name], c.value]).sort()).toEqual([
      ['b', 5],
      ['main', 3],
    ])
    expect([...callees.children.values()].map((c) => [view.strings[c.name], c.value])).toEqual([['k', 8]])
  })

  it('are laid out by cost, children within their parents', () => {
    const boxes = boxesOf(view, 'device', -1)
    expect(boxes.length).toBe(6)
    for (const box of boxes) {
      const up = boxes.find((b) => b.node === parent[box.node])
      if (up) expect(box.from >= up.from - 1e-9 && box.to <= up.to + 1e-9).toBe(true)
      expect(box.to - box.from).toBeCloseTo(box.value / 8)
    }
    const focused = boxesOf(view, 'device', 3)
    expect(focused.find((b) => b.node === 3)).toMatchObject({ from: 0, to: 1, depth: 1 })
    expect(focused.some((b) => b.node === 1)).toBe(false)
  })
})
