// The Report (schema lanewise.report/2) as the page reads it. All text in it is untrusted: shown as text, never as markup.

import type { RooflineData } from '../parts/roofline'

export type QuantityType =
  | 'time'
  | 'share'
  | 'count'
  | 'bytes'
  | 'bandwidth'
  | 'flops'
  | 'flop_rate'
  | 'ratio'
  | 'text'
  | 'number'
export type Value = number | string | boolean | null

export interface Quantity {
  type: QuantityType
  value: number | string
}

export interface TableColumn {
  key: string
  type: QuantityType
  label: string
}

export interface TableBlock {
  type?: 'table'
  title: string
  columns: TableColumn[]
  rows: Record<string, Value>[]
  omitted: number
}

export interface TextBlock {
  type: 'text'
  template: string
  values: Record<string, Quantity>
}

export interface StackBlock {
  type: 'stack'
  title: string
  frames: string[]
}

export type EvidenceBlock = (TableBlock & { type: 'table' }) | TextBlock | StackBlock

export interface Location {
  file: string
  line: number
  function: string
  module: string
  annotation: string
  operators: string[]
}

export interface Place {
  step: number
  start_ns: number
  end_ns: number
  event: number
  events: number
}

export interface Finding {
  code: string
  name: string
  title: string
  recoverable_us_per_step: number
  low_us_per_step: number
  high_us_per_step: number
  alone_us_per_step: number
  leaves_us_per_step: number
  bound: boolean
  confidence: 'high' | 'medium' | 'low'
  steps: number[]
  evidence: EvidenceBlock[]
  fix: string
  verify: string
  location: Location | null
  kind: 'validity' | 'regime' | 'problem' | 'statement' | 'note'
  places: Place[]
  /** What it would save: at most so many joules; dollars at the price that was given. 0 where that is not known. */
  joules_per_step: number
  dollars_per_million_steps: number
}

export interface Cost {
  joules_per_step: number
  watts: number
  dollars_per_hour: number
  dollars_per_million_steps: number
}

export interface Check {
  code: string
  name: string
  status: string
  reason: string
}

export interface Note {
  level: 'ok' | 'info' | 'warn' | 'bad'
  topic: string
  text: string
}

export interface Report {
  schema: string
  version: string
  verdict: string
  source: {
    path: string
    bytes: number
    digest: string
    events: number
    generation: string
    device: string
    devices: number
    software: Record<string, string>
    recorded: Record<string, boolean>
  }
  health: Note[]
  /** What was measured besides, where it says something. */
  statements: TextBlock[]
  /** What a step costs, where it is known. */
  cost: Cost | null
  steps: { source: string; count: number; steady: number[]; table: TableBlock; gaps: TableBlock | null }
  regime: {
    code: string
    name: string
    sentence: string
    shares: Record<string, number>
    busy_share: number
    step_us: number
    step_low_us: number
    step_high_us: number
    recorded_step_us: number
    unprofiled: boolean
    per_step: string[]
    as_recorded: string
  }
  findings: Finding[]
  checks: Check[]
  tables: Record<string, TableBlock>
  chain: TableBlock | null
}

/** Small facts beside the Report. */
export interface Overview {
  environment: [string, string][]
  classes: string[]
  steps: number[][]
  stepNumbers: number[]
  steady: boolean[]
  stepsOmitted: number
  version: string
}

export interface PageData {
  report: Report
  overview: Overview
  /** Path prefix of the local server that has what is not in the page, or "". */
  server: string
  /** Whether the page compares two runs. */
  compared: boolean
  /** The report in forty lines of Markdown, to paste. */
  summary: string
}

/** What the tables block carries. */
export interface TablesExtra {
  tables: Record<string, TableBlock>
  histograms: Record<string, [number, number, number[]]>
  roofline?: RooflineData
  measures: {
    overlap?: Measure & { beside: Record<'transfer' | 'communication', [total: number, hidden: number]> }
    'critical-path'?: Measure & { path: CriticalPath }
    memory?: Measure
  }
}

/** What a measure says, and its tables. */
export interface Measure {
  statements: TextBlock[]
  tables: Record<string, TableBlock>
}

export interface CriticalPath {
  /** ns, in the trace. */
  start: number
  kinds: string[]
  /** Start and end, ns from there, and which kind. */
  runs: [number, number, number][]
}
