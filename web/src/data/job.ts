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
  told: TextBlock[]
  tables: Record<string, TableBlock>
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
