// The lane of causes where many of them share a pixel: the pixel is divided by the time of each, so that a wide view
// says as much as the sum of a close one.

import { lowerBound, type Slices } from '../data/timeline'

export class CauseShares {
  /** Per class, which intervals are its own, and the time of those before each of them. */
  private readonly own: { at: Uint32Array; before: Float64Array }[]

  constructor(
    private readonly intervals: Slices,
    private readonly which: ArrayLike<number>,
    classes: number,
  ) {
    const counts = new Uint32Array(classes)
    for (let i = 0; i < intervals.count; i++) counts[which[i]]++
    this.own = Array.from(counts, (n) => ({ at: new Uint32Array(n), before: new Float64Array(n + 1) }))
    counts.fill(0)
    for (let i = 0; i < intervals.count; i++) {
      const { at, before } = this.own[which[i]]
      const n = counts[which[i]]++
      at[n] = i
      before[n + 1] = before[n] + intervals.duration[i]
    }
  }

  /**
   * Time of each class between two times, into `times`.
   *
   * @returns whether more than one interval begins there: otherwise there is nothing to divide.
   */
  between(from: number, to: number, times: Float64Array): boolean {
    const { intervals, which } = this
    const first = intervals.lowerBound(0, intervals.count, from)
    const last = intervals.lowerBound(first, intervals.count, to)
    if (last - first < 2) return false
    this.own.forEach(({ at, before }, k) => {
      times[k] = before[lowerBound(at, last)] - before[lowerBound(at, first)]
    })
    // What reaches in from before, and what reaches out.
    if (first > 0) times[which[first - 1]] += Math.max(0, Math.min(intervals.end(first - 1), to) - from)
    times[which[last - 1]] -= Math.max(0, intervals.end(last - 1) - to)
    return true
  }
}
