// What stands where, from top to bottom. Bands of pinned lanes come first and do not scroll.

import type { Timeline } from '../data/timeline'

export type Band =
  | { kind: 'heading'; y: number; height: number; title: string; hint: string }
  | { kind: 'series'; y: number; height: number; series: number }
  | { kind: 'row'; y: number; height: number; row: number; lane: number; first: boolean }

export interface Layout {
  bands: Band[]
  height: number
  /** Band of each row of the timeline, or -1 where its lane is folded. */
  bandOfRow: Int32Array
  /** Height of the pinned bands, px. */
  pinned: number
}

/** Lanes of which one row shows, and lanes that do not scroll as far as `room` px reach, by index. */
export interface Arrangement {
  folded: ReadonlySet<number>
  pinned: ReadonlySet<number>
  room: number
}

export const RULER = 26
export const STEPS = 20
export const CAUSES = 24
export const STICKY = RULER + STEPS + CAUSES + 4
const HEADING = 24
const SERIES = 36
const ROW = { device: 21, host: 17, none: 17 }
const GAP = 5

/** Lanes with more rows than this start folded when there are many lanes. */
const MANY_LANES = 200

export function layoutOf(timeline: Timeline, { folded, pinned, room }: Arrangement): Layout {
  const { lanes, device } = timeline.extra
  const bands: Band[] = []
  const bandOfRow = new Int32Array(timeline.rows.length).fill(-1)
  let y = 0
  const heading = (title: string, hint: string) => {
    bands.push({ kind: 'heading', y, height: HEADING, title, hint })
    y += HEADING
  }
  const curves = (series: number[]) => {
    for (const index of series) {
      bands.push({ kind: 'series', y, height: SERIES, series: index })
      y += SERIES + 2
    }
  }
  const rowsShown = (lane: number) => (folded.has(lane) ? 1 : timeline.laneRows[lane].count)
  const add = (lane: number) => {
    const { first } = timeline.laneRows[lane]
    const height = ROW[lanes[lane].side]
    for (let i = 0; i < rowsShown(lane); i++) {
      bandOfRow[first + i] = bands.length
      bands.push({ kind: 'row', y, height, row: first + i, lane, first: i === 0 })
      y += height
    }
    y += GAP
  }
  const kept = new Set<number>()
  lanes.forEach((lane, index) => {
    if (!pinned.has(index) || timeline.laneRows[index].first < 0) return
    if (y + rowsShown(index) * ROW[lane.side] > room) return
    if (kept.size === 0) y += GAP
    kept.add(index)
    add(index)
  })
  const pinnedHeight = y
  const indices = timeline.series.map((_, i) => i)
  const queue = indices.filter((i) => timeline.series[i].info.key === 'queue')
  let group = ''
  lanes.forEach((lane, index) => {
    const key = `${lane.side}:${lane.process}`
    if (key !== group) {
      group = key
      const many = lane.side === 'device' && device !== ''
      if (lane.side === 'device') {
        heading(
          `GPU ${lane.process}`,
          'what the device runs, one lane per stream; empty places are time in which it does nothing',
        )
        if (many && lane.process === device) curves(queue)
      } else if (lane.side === 'host')
        heading(
          `Host, process ${lane.process}`,
          device === ''
            ? 'what Python and PyTorch do; an outer call lies above what it calls'
            : 'what Python and PyTorch do to hand work to the device; an outer call lies above what it calls',
        )
      else heading('Elsewhere', 'rows of the recorder itself')
    }
    if (timeline.laneRows[index].first >= 0 && !kept.has(index)) add(index)
  })
  const rest = indices.filter((i) => !queue.includes(i))
  if (rest.length || (queue.length && !lanes.some((lane) => lane.side === 'device'))) {
    heading('Memory and counters', 'values over time, as the recorder and the allocator wrote them')
    curves(rest)
  }
  return { bands, height: y, bandOfRow, pinned: pinnedHeight }
}

/** Whether a band stays where it is while the others scroll. */
export const isPinned = (layout: Layout, band: Band): boolean => band.y < layout.pinned

/** Top of a band on the canvas, px. */
export const topOf = (layout: Layout, band: Band, scroll: number): number =>
  STICKY + band.y - (isPinned(layout, band) ? 0 : scroll)

/** Lanes that start folded: with very many lanes, all but the first ones with steps. */
export function initiallyFolded(timeline: Timeline): Set<number> {
  const folded = new Set<number>()
  if (timeline.extra.lanes.length > MANY_LANES)
    timeline.extra.lanes.forEach((lane, i) => {
      if (!lane.steps) folded.add(i)
    })
  return folded
}

/** The band at a height of the canvas, px. */
export function bandUnder(layout: Layout, height: number, scroll: number): Band | undefined {
  const { bands, pinned } = layout
  const y = height - STICKY + (height - STICKY < pinned ? 0 : scroll)
  let low = 0
  let high = bands.length - 1
  while (low < high) {
    const middle = (low + high + 1) >>> 1
    if (bands[middle].y <= y) low = middle
    else high = middle - 1
  }
  const band = bands[low]
  return band && y >= band.y && y < band.y + band.height ? band : undefined
}
