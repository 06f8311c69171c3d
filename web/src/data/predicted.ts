// The timelines of a step as it is and as predicted (lanewise/show/page/before_after.py). Names are untrusted text.

import type { Block, Column } from './unpack'

export interface Scenario {
  /** A finding's code, `all` for all of them, '' for the step as it is. */
  code: string
  mended: string[]
  step_us: number
  low_us: number
  high_us: number
  regime: string
  shares: Record<string, number>
  limits: { what: string; share: number }[]
  /** How many rows of the columns are its own; they follow each other in the order of the scenarios. */
  rows: number
}

export interface PredictedExtra {
  scenarios: Scenario[]
  names: string[]
  lanes: string[]
  lanesOmitted?: number
  kinds: string[]
}

export interface Row {
  lane: number
  start: number
  duration: number
  name: number
  kind: number
  /** Whether the chosen scenario changes it. */
  changed: boolean
}

/** The rows of a scenario; those of the step as it is are marked by what scenario `chosen` changes. */
export function rowsOf(block: Block<PredictedExtra>, scenario: number, chosen: number): Row[] {
  const { scenarios } = block.extra
  const first = scenarios.slice(0, scenario).reduce((sum, one) => sum + one.rows, 0)
  const { lane, start, duration, name, kind, mark } = block.columns as Record<string, Column>
  const rows: Row[] = []
  for (let i = first; i < first + scenarios[scenario].rows; i++) {
    const bits = mark[i]
    const changed = scenario === 0 ? Math.floor(bits / 2 ** (chosen - 1)) % 2 === 1 : bits === 1
    rows.push({ lane: lane[i], start: start[i], duration: duration[i], name: name[i], kind: kind[i], changed })
  }
  return rows
}

/** The scenario that stands for a finding; the first prediction where none does. */
export function scenarioOf(extra: PredictedExtra, code: string): number {
  const at = extra.scenarios.findIndex((one, i) => i > 0 && one.code === code)
  return at > 0 ? at : 1
}
