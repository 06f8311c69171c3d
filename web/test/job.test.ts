import { describe, expect, it } from 'vitest'
import { heatRows, type JobRank, strength } from '../src/data/job'

const rank = (number: number, more: (number | null)[]): JobRank => ({
  rank: String(number),
  file: '',
  late: false,
  cause: '',
  page: '',
  more,
})

describe('the map of ranks and steps', () => {
  it('has a row for each rank as long as they fit', () => {
    const rows = heatRows([rank(0, [1, 2]), rank(1, [3, null])], 2)
    expect(rows.map((row) => row.more)).toEqual([
      [1, 2],
      [3, null],
    ])
  })

  it('shows of neighbours that share a row the one that does most', () => {
    const rows = heatRows([rank(0, [1, null, -4]), rank(1, [3]), rank(2, [5, 6])], 2)
    expect(rows.map((row) => row.ranks.length)).toEqual([2, 1])
    expect(rows.map((row) => row.more)).toEqual([
      [3, null, -4],
      [5, 6],
    ])
  })

  it('colours by the step', () => {
    expect(strength(5, 100)).toBe(0.5)
    expect(strength(50, 100)).toBe(1)
    expect(strength(-50, 100)).toBe(-1)
    expect(strength(0, 0)).toBe(0)
  })
})
