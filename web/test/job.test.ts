import { describe, expect, it } from 'vitest'
import { apart, heatRows, type JobRank, lockedOn, strength, type Together } from '../src/data/job'

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

describe('ranks in time', () => {
  const together: Together = {
    step: 3,
    left_out: 0,
    rows: [0, 1, 2],
    meetings: [
      { what: 'all-reduce', bytes: 4, moving: 10 },
      { what: 'all-gather', bytes: 4, moving: 10 },
    ],
    spans: [
      [[0, 100], null],
      [
        [50, 60],
        [70, 90],
      ],
      [
        [0, 40],
        [50, 120],
      ],
    ],
  }

  it('come to a meeting as far apart as they wait for its end', () => {
    expect(apart(together, 0)).toBe(90)
    expect(apart(together, 1)).toBe(50)
  })

  it('are locked on its end by the clock of each, those that are not in it by way of others', () => {
    expect(lockedOn(together, 0)).toEqual([100, 60, 40])
    expect(lockedOn(together, 1)).toEqual([130, 90, 120])
    expect(
      lockedOn(
        {
          ...together,
          spans: [
            [null, [0, 1]],
            [[2, 3], null],
          ],
        },
        0,
      ),
    ).toEqual([null, 3])
  })
})
