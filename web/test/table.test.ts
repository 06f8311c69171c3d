import { describe, expect, it } from 'vitest'
import type { TableBlock } from '../src/data/report'
import { filterRows, markdown, sortRows } from '../src/parts/table'
import { panned, tickLabel, ticks, within, zoomed } from '../src/timeline/viewport'

const block: TableBlock = {
  title: 't',
  columns: [
    { key: 'name', type: 'text', label: 'name' },
    { key: 'time', type: 'time', label: 'time' },
  ],
  rows: [
    { name: 'b|x', time: 2000 },
    { name: 'a', time: null },
    { name: '<c>', time: 1000 },
  ],
  omitted: 0,
}

describe('tables', () => {
  it('sort numbers and texts, missing values last', () => {
    const by = (key: string, down: boolean) => sortRows(block.rows, { key, down }, block.columns).map((row) => row.name)
    expect(by('time', true)).toEqual(['b|x', '<c>', 'a'])
    expect(by('time', false)).toEqual(['<c>', 'b|x', 'a'])
    expect(by('name', false)[1]).toBe('a')
    expect(sortRows(block.rows, null, block.columns)).toBe(block.rows)
  })

  it('filter by any text', () => {
    expect(filterRows(block, ' B|').length).toBe(1)
    expect(filterRows(block, '2000').length).toBe(0)
  })

  it('become Markdown in which names are text', () => {
    const text = markdown(block.columns, block.rows)
    expect(text).toContain('| b\\|x | 2.00 µs |')
    expect(text).toContain('\\<c\\>')
    expect(text).toContain('–')
  })
})

describe('viewport', () => {
  const span = { from: 0, to: 1000 }
  it('keeps a time in place while zooming, and stays near the recording', () => {
    const view = zoomed({ from: 200, to: 600 }, 0.5, 300, span)
    expect((300 - view.from) / (view.to - view.from)).toBeCloseTo(0.25)
    expect(panned(view, 1e9, span).to).toBeLessThanOrEqual(1011)
    expect(within({ from: -900, to: 5000 }, span)).toEqual({ from: -2450, to: 3450 })
    expect(zoomed(view, 1e-9, 300, span).to - zoomed(view, 1e-9, 300, span).from).toBe(20)
  })

  it('marks round times', () => {
    const { step, times } = ticks({ from: 3, to: 1003 }, 10)
    expect(step).toBe(100)
    expect(times).toEqual([100, 200, 300, 400, 500, 600, 700, 800, 900, 1000])
  })

  it('writes no two marks alike, however far from the beginning', () => {
    for (const from of [0, 999_000, 4.4e9, 9e14])
      for (const length of [30, 1e3, 1e6, 1e10]) {
        const { step, times } = ticks({ from, to: from + length }, 10)
        expect(new Set(times.map((time) => tickLabel(time, step))).size).toBe(times.length)
      }
    expect(tickLabel(4_485_000_000, 5_000_000)).toBe('4.485 s')
    expect(tickLabel(-20_000, 10_000)).toBe('−20 µs')
  })
})
