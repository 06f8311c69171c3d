// A comparison (schema lanewise.diff/1) as the page reads it, and the tree of both runs. All text is untrusted.

import { childLists, subtotals } from './tree'
import type { Block, Column } from './unpack'

export interface Ratio {
  verdict: string
  ratio: number | null
  low: number | null
  high: number | null
}

export interface OpSide {
  name: string
  kind: string
  operator: string
}

export interface Change {
  how: string
  a: OpSide[]
  b: OpSide[]
  times: number
  a_ns: number
  b_ns: number
  sure: boolean
}

export interface WaterfallItem {
  key: string
  label: string
  ns: number
  parts: WaterfallItem[]
}

export interface Side {
  label: string
  sources: string[]
  steps: number
  steady: number
  step_ns: number
  regime: string
  classes: Record<string, number>
}

export interface Difference {
  verdict: string
  step: Ratio
  warnings: string[]
  environment: { key: string; a: string; b: string; weight: string }[]
  waterfall: { a_ns: number; b_ns: number; items: WaterfallItem[] }
  counts: { key: string; label: string; type: string; a: number; b: number }[]
  device: Change[]
  findings: {
    status: string
    code: string
    name: string
    a_title: string
    b_title: string
    a_us: number
    b_us: number
  }[]
}

export interface DiffExtra {
  comparison: { base: Side; others: Side[]; differences: Difference[] }
  tree: { strings: string[]; kinds: string[]; phases: string[] }
  anchors: [[number, number], [number, number]]
  labels: [string, string]
}

/** The tree of both runs: inclusive costs of each side, by metric. */
export interface DiffTree {
  parent: Int32Array
  name: Column
  detail: Column
  kind: Column
  strings: string[]
  a: Record<string, Float64Array>
  b: Record<string, Float64Array>
  children: number[][]
  roots: number[]
}

export const DIFF_METRICS = ['device', 'host', 'launches'] as const

export function diffTree(block: Block<DiffExtra>): DiffTree {
  const c = block.columns
  const parent = Int32Array.from(c.parent)
  const side = (name: string) =>
    Object.fromEntries(DIFF_METRICS.map((metric) => [metric, subtotals(parent, c[`${name}.${metric}`])]))
  return {
    parent,
    name: c.name,
    detail: c.detail,
    kind: c.kind,
    strings: block.extra.tree.strings,
    a: side('a'),
    b: side('b'),
    ...childLists(parent),
  }
}
