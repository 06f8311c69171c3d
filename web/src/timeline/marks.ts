// The events of a finding, wherever they are in the lanes.

import { lowerBound, type Timeline } from '../data/timeline'
import type { Block, Column } from '../data/unpack'
import { perPixel, type Viewport, xOf } from './viewport'

/** Events by row and start. */
export interface Marks {
  row: ArrayLike<number>
  start: ArrayLike<number>
  duration: ArrayLike<number>
  /** How many events there are, of which only the longest may be here. */
  total: number
}

/** Of a page that holds all slices: `marked:CODE` are their positions, ascending. */
export function marksIn(timeline: Timeline, code: string): Marks | null {
  const at = timeline.columns[`marked:${code}`]
  if (!at) return null
  const { start, duration } = timeline.slices
  const of = (column: ArrayLike<number>) => Float64Array.from(at, (slice) => column[slice])
  return {
    row: Uint32Array.from(at, (slice) => timeline.rowOf(slice)),
    start: of(start),
    duration: of(duration),
    total: timeline.extra.marked?.[code] ?? at.length,
  }
}

export function marksOf({ columns, extra }: Block<{ total: number }>): Marks {
  const { row, start, duration } = columns as Record<string, Column>
  return { row, start, duration, total: extra.total }
}

/** Where marks of a row are on screen, px from the left of the lanes; those that touch are one. */
export function inView(marks: Marks, row: number, view: Viewport, plot: number): [number, number][] {
  const { start, duration } = marks
  const first = lowerBound(marks.row, row)
  const end = lowerBound(marks.row, row + 1, first)
  const pixel = perPixel(view, plot)
  const found: [number, number][] = []
  // One event earlier may still be open when the view begins.
  let i = Math.max(first, lowerBound(start, view.from, first, end) - 1)
  while (i < end && start[i] < view.to) {
    const from = Math.max(0, xOf(view, plot, start[i]))
    const to = Math.min(plot, xOf(view, plot, start[i] + duration[i]))
    const last = found.at(-1)
    if (last && from <= last[1] + 1) last[1] = Math.max(last[1], to)
    else if (to >= 0) found.push([from, to])
    // Of what begins within the same half pixel only the last one can be wider: events of a row follow each other.
    i = Math.max(i + 1, lowerBound(start, start[i] + pixel / 2, i + 1, end) - 1)
  }
  return found
}
