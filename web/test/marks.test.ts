import { describe, expect, it } from 'vitest'
import type { Timeline } from '../src/data/timeline'
import { bandUnder, layoutOf, STICKY, topOf } from '../src/timeline/layout'
import { inView } from '../src/timeline/marks'

describe('inView', () => {
  // Row 0: an event of 10; row 1: many short ones and a long one.
  const short = Array.from({ length: 999 }, (_, i) => i * 2)
  const start = [100, ...short, 4000]
  const duration = [10, ...short.map(() => 1), 3000]
  const marks = { row: start.map((_, i) => (i ? 1 : 0)), start, duration, total: 1001 }

  it('shows those of one row, each where they are apart and as one where they touch', () => {
    expect(inView(marks, 0, { from: 0, to: 1000 }, 1000)).toEqual([[100, 110]])
    expect(inView(marks, 2, { from: 0, to: 1000 }, 1000)).toEqual([])
    expect(inView(marks, 1, { from: 0, to: 20 }, 1000)).toHaveLength(10)
    const wide = inView(marks, 1, { from: 0, to: 10_000 }, 100)
    expect(wide.map((range) => range.map(Math.round))).toEqual([
      [0, 20],
      [40, 70],
    ])
  })

  it('shows one that began before the view and is open still', () => {
    expect(inView(marks, 1, { from: 5000, to: 6000 }, 100)).toEqual([[0, 100]])
    expect(inView(marks, 1, { from: 8000, to: 9000 }, 100)).toEqual([])
  })

  it('loses no long one behind short ones in the same pixel', () => {
    const many = { row: [0, 0, 0], start: [0, 2, 4], duration: [1, 1, 5000], total: 3 }
    expect(inView(many, 0, { from: 0, to: 10_000 }, 100)[0][1]).toBeCloseTo(50.04)
  })
})

describe('pinned lanes', () => {
  const lane = (side: string, process: string) => ({ label: 'x', side, process, thread: '0', events: 1, steps: false })
  const timeline = {
    rows: Array.from({ length: 6 }, (_, i) => ({ lane: i < 3 ? 0 : i - 2, depth: 0, first: 0, end: 0 })),
    laneRows: [
      { first: 0, count: 3 },
      { first: 3, count: 1 },
      { first: 4, count: 1 },
      { first: 5, count: 1 },
    ],
    series: [],
    extra: { lanes: [lane('host', '1'), lane('host', '1'), lane('host', '1'), lane('host', '1')], device: '' },
  } as unknown as Timeline
  const arranged = (pinned: number[], room = 1000) =>
    layoutOf(timeline, { folded: new Set(), pinned: new Set(pinned), room })

  it('come first, once, and stay while the others scroll', () => {
    const layout = arranged([2])
    const rows = layout.bands.flatMap((band) => (band.kind === 'row' ? [band.row] : []))
    expect(rows).toEqual([4, 0, 1, 2, 3, 5])
    expect(Array.from(layout.bandOfRow, (at) => layout.bands[at].kind === 'row')).toEqual(Array(6).fill(true))
    const [first, second] = [layout.bands[layout.bandOfRow[4]], layout.bands[layout.bandOfRow[5]]]
    expect(topOf(layout, first, 30)).toBe(topOf(layout, first, 0))
    expect(topOf(layout, second, 30)).toBe(topOf(layout, second, 0) - 30)
    expect(bandUnder(layout, topOf(layout, first, 30) + 1, 30)).toBe(first)
    expect(bandUnder(layout, topOf(layout, second, 30) + 1, 30)).toBe(second)
    expect(bandUnder(layout, STICKY + layout.pinned - 1, 500)?.kind).not.toBe('heading')
  })

  it('are as many as there is room for', () => {
    expect(arranged([1, 2, 3], 45).bands.filter((band) => band.y < arranged([1, 2, 3], 45).pinned)).toHaveLength(2)
    expect(arranged([0], 10).pinned).toBe(0)
    expect(arranged([]).pinned).toBe(0)
  })
})
