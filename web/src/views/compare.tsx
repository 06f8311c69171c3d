// Two runs: what changed and what did not, the way from one step time to the other, the program coloured by change, and
// both timelines, locked together.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { type Change, DIFF_METRICS, type DiffExtra, type Difference, diffTree, type WaterfallItem } from '../data/diff'
import { failure, timeline as loadedAfter, before as loadedBefore, diff as loadedDiff } from '../data/load'
import type { TableBlock } from '../data/report'
import type { Timeline } from '../data/timeline'
import type { Block } from '../data/unpack'
import { Flame } from '../flame/flame'
import { type Box, diffBoxes } from '../flame/layout'
import { clean, formatQuantity, formatTime } from '../format'
import { DataTable } from '../parts/table'
import { dark } from '../parts/top'
import { Controller } from '../timeline/controller'
import { HoverOutline } from '../timeline/hover-outline'
import { InPage } from '../timeline/source'
import { METRICS } from './calls'

export function Compare() {
  const block = loadedDiff.value
  if (!block)
    return (
      <main id="main" class="loading">
        {failure.value ? 'The comparison is not available.' : 'Unpacking the comparison …'}
      </main>
    )
  const { comparison, labels } = block.extra
  const difference = comparison.differences[0]
  const [a, b] = [comparison.base, comparison.others[0]]
  const [verdict, ...reasons] = clean(difference.verdict, 1500).split(/(?<=\.) (?=[A-Z])/)
  return (
    <main id="main" class="page">
      <p class="eyebrow">
        {clean(labels[1], 60)} compared with {clean(labels[0], 60)}
      </p>
      <h1>{verdict}</h1>
      {reasons.length > 0 && <p>{reasons.join(' ')}</p>}
      <p class="dim small">
        {clean(labels[0], 60)}: {clean(a.sources.join(', '), 200)}, {side(a)}. {clean(labels[1], 60)}:{' '}
        {clean(b.sources.join(', '), 200)}, {side(b)}.
      </p>
      {difference.warnings.map((warning, i) => (
        <p key={i} class="note level-warn">
          <span class="mark">!</span> <span>{clean(warning, 500)}</span>
        </p>
      ))}
      <h2>From one step time to the other</h2>
      <Waterfall difference={difference} labels={labels} />
      <h2>What changed on the device</h2>
      <DataTable block={changes(difference.device, labels)} tools />
      <h2>In numbers, per step</h2>
      <Counts difference={difference} labels={labels} />
      <Findings difference={difference} />
      <h2>The program, coloured by change</h2>
      <Tree block={block} labels={labels} />
      <h2>Both timelines, locked together</h2>
      <Both block={block} />
      {difference.environment.length > 0 && (
        <>
          <h2>What else differs</h2>
          <DataTable
            block={{
              title: 'Environment',
              columns: [
                { key: 'key', type: 'text', label: 'what' },
                { key: 'a', type: 'text', label: labels[0] },
                { key: 'b', type: 'text', label: labels[1] },
                { key: 'weight', type: 'text', label: 'what it means' },
              ],
              rows: difference.environment.map((row) => ({ ...row, weight: WEIGHTS[row.weight] ?? row.weight })),
              omitted: 0,
            }}
          />
        </>
      )}
    </main>
  )
}

/** How much of a run was compared, and what it is bound by. */
function side({ steady, regime }: { steady: number; regime: string }): string {
  const steps = `${steady.toLocaleString('en')} steady step${steady === 1 ? '' : 's'}`
  return Object.hasOwn(REGIMES, regime) ? `${steps}, ${REGIMES[regime]}` : steps
}

/** As in lanewise/measure/regime/regime.py. */
const REGIMES: Record<string, string> = {
  host: 'host-bound',
  compute: 'device-bound',
  transfer: 'transfer-bound',
  communication: 'communication-bound',
  mixed: 'of mixed regime',
}

const WEIGHTS: Record<string, string> = {
  refuse: 'they should not be compared',
  warn: 'may explain a difference',
  info: 'hardly matters',
}

const signed = (ns: number): string => (ns === 0 ? '±0' : `${ns > 0 ? '+' : '−'}${formatTime(Math.abs(ns))}`)

/** Bars from A's step time to B's: each begins where the one before it ended. */
function Waterfall({ difference, labels }: { difference: Difference; labels: [string, string] }) {
  const { a_ns, b_ns, items } = difference.waterfall
  let at = a_ns
  const rows = items
    .filter((item) => item.ns !== 0)
    .map((item) => {
      const from = at
      at += item.ns
      return { item, from, to: at }
    })
  const most = Math.max(a_ns, b_ns, ...rows.map((row) => Math.max(row.from, row.to)), 1)
  const place = (from: number, to: number) => ({
    left: `${(Math.min(from, to) / most) * 100}%`,
    width: `${Math.max(0.3, (Math.abs(to - from) / most) * 100)}%`,
  })
  return (
    <ol class="waterfall">
      <li>
        <span>{clean(labels[0], 60)}</span>
        <span class="water-track">
          <span class="water whole" style={place(0, a_ns)} />
        </span>
        <span class="step-time">{formatTime(a_ns)}</span>
      </li>
      {rows.map(({ item, from, to }) => (
        <Item key={item.key} item={item} style={place(from, to)} />
      ))}
      <li>
        <span>{clean(labels[1], 60)}</span>
        <span class="water-track">
          <span class="water whole" style={place(0, b_ns)} />
        </span>
        <span class="step-time">{formatTime(b_ns)}</span>
      </li>
    </ol>
  )
}

function Item({ item, style }: { item: WaterfallItem; style: Record<string, string> }) {
  const parts = item.parts.filter((part) => part.ns !== 0)
  return (
    <li>
      <span>
        {clean(item.label, 80)}
        {parts.length > 0 && (
          <details class="small">
            <summary>{parts.length === 1 ? '1 part' : `${parts.length} parts`}</summary>
            {parts.slice(0, 30).map((part) => (
              <p key={part.key}>
                {signed(part.ns)} <bdi>{clean(part.label, 120)}</bdi>
              </p>
            ))}
          </details>
        )}
      </span>
      <span class="water-track">
        <span class={`water ${item.ns > 0 ? 'more' : 'less'}`} style={style} />
      </span>
      <span class="step-time">{signed(item.ns)}</span>
    </li>
  )
}

function changes(device: Change[], labels: [string, string]): TableBlock {
  const names = (side: Change['a']) => side.map((op) => op.name).join(' + ') || '–'
  return {
    title: 'Changes',
    columns: [
      { key: 'how', type: 'text', label: 'how' },
      { key: 'a', type: 'text', label: labels[0] },
      { key: 'b', type: 'text', label: labels[1] },
      { key: 'times', type: 'count', label: 'per step' },
      { key: 'a_ns', type: 'time', label: `time, ${labels[0]}` },
      { key: 'b_ns', type: 'time', label: `time, ${labels[1]}` },
      { key: 'delta', type: 'text', label: 'change' },
    ],
    rows: device.slice(0, 500).map((change) => ({
      how: change.sure ? change.how : `${change.how} (by order)`,
      a: names(change.a),
      b: names(change.b),
      times: change.times,
      a_ns: change.a_ns,
      b_ns: change.b_ns,
      delta: signed(change.b_ns - change.a_ns),
    })),
    omitted: Math.max(0, device.length - 500),
  }
}

function Counts({ difference, labels }: { difference: Difference; labels: [string, string] }) {
  return (
    <table class="narrow">
      <thead>
        <tr>
          <th>what</th>
          <th class="number">{clean(labels[0], 60)}</th>
          <th class="number">{clean(labels[1], 60)}</th>
        </tr>
      </thead>
      <tbody>
        {difference.counts.map((count) => (
          <tr key={count.key}>
            <td>{clean(count.label, 80)}</td>
            <td class="number">{formatQuantity(count.type, count.a)}</td>
            <td class="number">{formatQuantity(count.type, count.b)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function Findings({ difference }: { difference: Difference }) {
  const words: Record<string, string> = { fixed: '✓ fixed', new: '! new', remaining: '· remains' }
  if (difference.findings.length === 0) return null
  return (
    <>
      <h2>Findings of either run</h2>
      <ul class="notes">
        {difference.findings.map((finding) => (
          <li key={finding.code} class="note">
            <span class="finding-status">{words[finding.status] ?? clean(finding.status)}</span>
            <span>
              <span class="code">{clean(finding.code)}</span> {clean(finding.b_title || finding.a_title, 400)}
            </span>
          </li>
        ))}
      </ul>
    </>
  )
}

function Tree({ block, labels }: { block: Block<DiffExtra>; labels: [string, string] }) {
  const tree = useMemo(() => diffTree(block), [block])
  const metrics = DIFF_METRICS.filter((metric) =>
    tree.roots.some((root) => tree.a[metric][root] + tree.b[metric][root] > 0),
  )
  const [metric, setMetric] = useState<(typeof DIFF_METRICS)[number]>(metrics[0] ?? 'device')
  const [focus, setFocus] = useState(-1)
  const [picked, setPicked] = useState(-1)
  const boxes = useMemo(() => diffBoxes(tree, metric, focus), [tree, metric, focus])
  const [words, type] = METRICS[metric]
  const whole = tree.roots.reduce((sum, root) => sum + tree.a[metric][root] + tree.b[metric][root], 0)
  const open = (box: Box) => setFocus(box.node === focus ? -1 : box.node)
  return (
    <>
      <p class="tools">
        <label>
          by{' '}
          <select value={metric} onChange={(event) => setMetric(event.currentTarget.value as typeof metric)}>
            {metrics.map((of) => (
              <option key={of} value={of}>
                {METRICS[of][0]}
              </option>
            ))}
          </select>
        </label>
        {focus >= 0 && (
          <button type="button" onClick={() => setFocus(-1)}>
            Whole tree
          </button>
        )}
        <span class="dim small">
          The width is the {words.toLowerCase()} of both runs together, per step. ▲ more, ▼ less in{' '}
          {clean(labels[1], 60)}.
        </span>
      </p>
      <Flame
        boxes={boxes}
        kinds={block.extra.tree.kinds}
        type={type}
        total={whole}
        label={`Change of ${words}`}
        selected={boxes.findIndex((box) => box.node === picked)}
        onPick={(box) => setPicked(box.node)}
        onOpen={open}
      />
      {picked >= 0 && (
        <section class="picked" aria-live="polite" aria-label="Selected node">
          <p class="slice-name">
            <bdi>{clean(tree.strings[tree.name[picked]], 400)}</bdi>
          </p>
          <p>
            {clean(labels[0], 60)} {formatQuantity(type, tree.a[metric][picked])}, {clean(labels[1], 60)}{' '}
            {formatQuantity(type, tree.b[metric][picked])}
          </p>
        </section>
      )}
    </>
  )
}

function Both({ block }: { block: Block<DiffExtra> }) {
  const [a, b] = [loadedBefore.value, loadedAfter.value]
  if (!a || !b) return <p class="dim">Unpacking the timelines …</p>
  return <Locked a={a} b={b} block={block} />
}

function Locked({ a, b, block }: { a: Timeline; b: Timeline; block: Block<DiffExtra> }) {
  const upper = useRef<HTMLCanvasElement>(null)
  const lower = useRef<HTMLCanvasElement>(null)
  const { anchors, labels } = block.extra
  const pair = useMemo(() => {
    const made = [a, b].map((timeline) => new Controller(new InPage(timeline, {}), () => {}))
    // One moment of the first steady step stands above the same moment of the other run's.
    made[0].lock(made[1], anchors[1][0] - anchors[0][0])
    return made
  }, [a, b])
  useEffect(() => {
    const stops = [upper, lower].map((canvas, i) => canvas.current && pair[i].attach(canvas.current, () => {}, false))
    const length = Math.max(anchors[0][1] - anchors[0][0], anchors[1][1] - anchors[1][0])
    pair[0].show(anchors[0][0] - length * 0.03, anchors[0][0] + length * 1.05)
    return () => {
      for (const stop of stops) stop?.()
    }
  }, [pair])
  useEffect(() => {
    for (const controller of pair) controller.setDark(dark.value)
  }, [pair, dark.value])
  return (
    <>
      <p class="dim small">Both begin with their first steady step. Zooming and moving one moves the other.</p>
      {[upper, lower].map((canvas, i) => (
        <figure key={labels[i]} class="locked">
          <figcaption>
            {clean(labels[i], 60)}
            {pair[i].selected.value && (
              <span class="dim">
                {' '}
                <bdi class="mono">{clean(pair[i].selected.value.slice.short, 90)}</bdi>{' '}
                {formatTime(pair[i].selected.value.slice.duration)}
              </span>
            )}
          </figcaption>
          <div class="canvas-box">
            {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: a screen reader must hand the keys on */}
            <canvas
              ref={canvas}
              tabIndex={0}
              role="application"
              aria-label={`Timeline, ${clean(labels[i], 60)}. W and S zoom, A and D move, arrow keys walk from slice to slice.`}
            />
            <HoverOutline hover={pair[i].hover} />
          </div>
        </figure>
      ))}
    </>
  )
}
