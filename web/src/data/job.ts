// Ranks of one job (lanewise/show/page/job_page.py). File names are untrusted text.

import type { TableBlock, TextBlock } from './report'

export interface JobRank {
  rank: string
  file: string
  late: boolean
  cause: string
  /** Address of the page of its own trace, "" if there is none. */
  page: string
  /** What it does more than the median rank in each step, ns; null where it has no such step. */
  more: (number | null)[]
}

export interface JobData {
  name: string
  version: string
  step_ns: number
  ranks: JobRank[]
  /** Numbers of the steps of the first rank. */
  steps: number[]
  /** What the ranks did together in one step; null where nothing is matched. */
  together: Together | null
  told: TextBlock[]
  tables: Record<string, TableBlock>
}

export interface Together {
  step: number
  /** How many of that step are not shown. */
  left_out: number
  /** Which of the job's ranks are shown. */
  rows: number[]
  /** bytes: of the message, -1 if unknown; moving: the shortest that any rank takes for it, ns. */
  meetings: { what: string; bytes: number; moving: number }[]
  /** For each rank shown and each meeting: when it came and when that was over, ns by its own clock. */
  spans: ([number, number] | null)[][]
}

/** What the page of a job holds in place of a report. */
export interface JobPage {
  job: JobData
}

export interface HeatRow {
  /** Ranks that it stands for. */
  ranks: JobRank[]
  more: (number | null)[]
}

/** At most so many rows: neighbours share one, which shows the most that any of them does more. */
export function heatRows(ranks: JobRank[], most: number): HeatRow[] {
  const each = Math.max(1, Math.ceil(ranks.length / most))
  const rows: HeatRow[] = []
  for (let i = 0; i < ranks.length; i += each) {
    const mine = ranks.slice(i, i + each)
    const steps = Math.max(...mine.map((one) => one.more.length))
    const more = Array.from({ length: steps }, (_, step) => {
      const known = mine.map((one) => one.more[step]).filter((value): value is number => typeof value === 'number')
      return known.length ? Math.max(...known) : null
    })
    rows.push({ ranks: mine, more })
  }
  return rows
}

/** How strongly a cell is coloured, -1 to 1: a tenth of the step more is all of it. */
export function strength(more: number, step: number): number {
  const scale = Math.max(step * 0.1, 1)
  return Math.max(-1, Math.min(1, more / scale))
}

/** How far apart the ranks come to a meeting, ns, by the moment at which it ends for all of them. */
export function apart(together: Together, meeting: number): number {
  const waits = together.spans.flatMap((spans) => {
    const span = spans[meeting]
    return span ? [span[1] - span[0]] : []
  })
  return waits.length > 1 ? Math.max(...waits) - Math.min(...waits) : 0
}

/**
 * When each rank is at the end of a meeting, ns by its own clock. One that is not in it is placed by the nearest meeting
 * with a rank that is placed already; null where there is none.
 */
export function lockedOn(together: Together, meeting: number): (number | null)[] {
  const { spans } = together
  const ends = spans.map((mine) => mine[meeting]?.[1] ?? null)
  const order = together.meetings.map((_, i) => i).sort((a, b) => Math.abs(a - meeting) - Math.abs(b - meeting))
  for (let again = true; again; ) {
    again = false
    for (const at of order) {
      const known = ends.findIndex((end, rank) => end !== null && spans[rank][at])
      const moment = known < 0 ? 0 : (spans[known][at]?.[1] ?? 0) - (ends[known] ?? 0)
      for (let rank = 0; known >= 0 && rank < ends.length; rank++) {
        const span = spans[rank][at]
        if (!span || ends[rank] !== null) continue
        ends[rank] = span[1] - moment
        again = true
      }
    }
  }
  return ends
}
