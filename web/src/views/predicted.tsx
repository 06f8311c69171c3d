// One step as it is, and below it the same step as predicted with a finding mended, on one scale.

import { useEffect, useMemo } from 'preact/hooks'
import { failure, predicted, want } from '../data/load'
import { type PredictedExtra, type Row, rowsOf, type Scenario, scenarioOf } from '../data/predicted'
import type { Finding } from '../data/report'
import type { Block } from '../data/unpack'
import { clean, formatQuantity, formatTime } from '../format'
import { ClassBar, ClassLegend } from '../parts/classes'
import { Wide } from '../parts/wide'
import { go, hashOf } from '../route'
import { colourOf } from '../timeline/palette'

const WIDTH = 1100
const LABEL = 120
const LANE = 22
const ALL = 'ALL000'

export function Predicted({ findings, finding, server }: { findings: Finding[]; finding: string; server: string }) {
  const block = predicted.value
  useEffect(() => want('predicted', server), [server])
  if (!block)
    return (
      <main id="main" class="loading">
        {failure.value ? 'The prediction is not available.' : 'Computing the predictions …'}
      </main>
    )
  if (block.extra.scenarios.length < 2)
    return (
      <main id="main" class="loading">
        Nothing was found that would shorten the step: there is nothing to predict.
      </main>
    )
  return <Both block={block} findings={findings} code={finding === ALL ? 'all' : finding} />
}

function Both({ block, findings, code }: { block: Block<PredictedExtra>; findings: Finding[]; code: string }) {
  const { scenarios } = block.extra
  const chosen = scenarioOf(block.extra, code)
  const [now, then] = [scenarios[0], scenarios[chosen]]
  const longest = Math.max(now.step_us, then.step_us) * 1e3
  const name = (one: Scenario) =>
    one.code === 'all'
      ? `All ${one.mended.length} together`
      : `${one.code} ${findings.find((f) => f.code === one.code)?.name ?? ''}`
  return (
    <main id="main" class="page predicted">
      <h1>The step as it is, and with the findings fixed</h1>
      <p class="tools">
        <label>
          Fixed:{' '}
          <select
            value={then.code}
            onChange={(e) => {
              const value = (e.currentTarget as HTMLSelectElement).value
              go({ view: 'predicted', finding: value === 'all' ? ALL : value })
            }}
          >
            {scenarios.slice(1).map((one) => (
              <option key={one.code} value={one.code}>
                {clean(name(one), 80)}: {formatTime(one.step_us * 1e3)}
              </option>
            ))}
          </select>
        </label>{' '}
        {then.code !== 'all' && (
          <a href={hashOf({ view: 'overview', finding: then.code })}>the finding with its evidence</a>
        )}
      </p>
      <Step block={block} scenario={0} chosen={chosen} longest={longest} title="As it is, without the profiler" />
      <Step
        block={block}
        scenario={chosen}
        chosen={chosen}
        longest={longest}
        title={`Predicted: ${name(then)} fixed`}
      />
      <ClassLegend names={Object.keys({ ...now.shares, ...then.shares })} />
      <p class="dim small">
        One step once they repeat, from the beginning of its work on the device; both are drawn to one scale. Outlined:
        what the change touches. Short rows that follow each other closely are drawn as one, named after the longest.
        {(block.extra.lanesOmitted ?? 0) > 0 && ` ${block.extra.lanesOmitted} lanes that do little are left out.`}
      </p>
    </main>
  )
}

interface StepProps {
  block: Block<PredictedExtra>
  scenario: number
  chosen: number
  longest: number
  title: string
}

function Step({ block, scenario, chosen, longest, title }: StepProps) {
  const { scenarios, lanes } = block.extra
  const state = scenarios[scenario]
  const rows = useMemo(() => rowsOf(block, scenario, chosen), [block, scenario, chosen])
  const height = lanes.length * LANE
  const x = (ns: number) => LABEL + (ns / longest) * (WIDTH - LABEL)
  const waits = state.limits.map((one) => `${clean(one.what, 60)} ${formatQuantity('share', one.share)}`).join(', ')
  return (
    <section class="chart step-state" aria-label={clean(title, 120)}>
      <h2>
        {clean(title, 120)}: {formatTime(state.step_us * 1e3)}{' '}
        <span class="dim small">
          {formatTime(state.low_us * 1e3)} to {formatTime(state.high_us * 1e3)} · {clean(state.regime, 60)}
        </span>
      </h2>
      <Wide label={`${clean(title, 120)}: classes of time and lanes`}>
        <div
          style={{
            marginLeft: `${(LABEL / WIDTH) * 100}%`,
            width: `${((x(state.step_us * 1e3) - LABEL) / WIDTH) * 100}%`,
          }}
        >
          {Object.keys(state.shares).length > 0 && <ClassBar shares={state.shares} label={title} />}
        </div>
        <svg
          viewBox={`0 0 ${WIDTH} ${height + 18}`}
          role="img"
          aria-label={`${clean(title, 120)}: ${rows.length} rows`}
        >
          {lanes.map((label, i) => (
            <g key={i}>
              <rect class="lane" x={LABEL} y={i * LANE} width={x(state.step_us * 1e3) - LABEL} height={LANE - 3} />
              <text x="0" y={i * LANE + 14}>
                {clean(label, 20)}
              </text>
            </g>
          ))}
          {rows.map((row, i) => (
            <Bar key={i} row={row} extra={block.extra} x={x} />
          ))}
          <line class="axis" x1={x(state.step_us * 1e3)} x2={x(state.step_us * 1e3)} y1="0" y2={height} />
          <text x={LABEL} y={height + 14}>
            0 µs
          </text>
          <text x={Math.max(LABEL + 90, x(state.step_us * 1e3))} y={height + 14} text-anchor="end">
            {formatTime(state.step_us * 1e3)}
          </text>
        </svg>
      </Wide>
      {waits && <p class="small">Critical path of the step: {waits}.</p>}
    </section>
  )
}

function Bar({ row, extra, x }: { row: Row; extra: PredictedExtra; x: (ns: number) => number }) {
  const kind = extra.kinds[row.kind] ?? ''
  const width = Math.max(0.6, x(row.start + row.duration) - x(row.start) - 0.2)
  // An outline of a hair's breadth would hide what it is around.
  const outlined = row.changed && width > 4
  const what = kind === 'waits' ? 'waits in ' : kind === 'host' ? 'before the launches of ' : ''
  return (
    <rect
      class={`${kind === 'waits' ? 'waits' : 'work'}${outlined ? ' changed' : ''}`}
      x={x(row.start)}
      y={row.lane * LANE + (outlined ? 1 : 0)}
      width={width}
      height={LANE - 3 - (outlined ? 2 : 0)}
      fill={colourOf(kind)}
    >
      <title>
        {what}
        {clean(extra.names[row.name] ?? '', 200)}: {formatTime(row.duration)}
      </title>
    </rect>
  )
}
