// Pictures of what was measured: what runs beside what, what the step waits for, who holds the memory.

import type { Measure, TablesExtra } from '../data/report'
import { clean, formatBytes, formatQuantity, formatTime } from '../format'
import { Bars, type Part } from './bars'
import { CLASS_WORDS } from './classes'
import { filled } from './evidence'

export function Statements({ measure }: { measure: Measure }) {
  return (
    <>
      {measure.statements.map((one, i) => (
        <p key={i}>{clean(filled(one.template, one.values), 600)}</p>
      ))}
    </>
  )
}

type Measures = Required<TablesExtra['measures']>

const KINDS: [key: string, look: string, what: string][] = [
  ['compute', 'class-compute', 'computes'],
  ['copies', 'class-transfer', 'copies'],
  ['communication', 'class-communication', 'communicates'],
]

/** What each stream does, and how much of copies and communication computation hides. */
export function Overlap({ measure }: { measure: Measures['overlap'] }) {
  const streams = (measure.tables.overlap?.rows ?? []).map((row) => {
    const parts: Part[] = KINDS.map(([key, look, what]) => ({
      size: Number(row[key]),
      look,
      what: `${what} ${formatTime(Number(row[key]))}`,
    }))
    const busy = parts.filter(({ size }) => size > 0).map(({ what }) => what)
    return { name: String(row.label), parts, note: busy.join(', ') }
  })
  const beside = (['transfer', 'communication'] as const)
    .filter((name) => measure.beside[name][0] > 0)
    .map((name) => {
      const [total, hidden] = measure.beside[name]
      const look = `class-${name}`
      return {
        name: name === 'transfer' ? 'copies' : name,
        parts: [
          { size: hidden, look: `${look} hidden`, what: `beside computation ${formatTime(hidden)}` },
          { size: total - hidden, look, what: `with nothing computed beside it ${formatTime(total - hidden)}` },
        ],
        note: `${formatTime(hidden)} beside computation, ${formatTime(total - hidden)} with nothing computed beside it`,
      }
    })
  return (
    <>
      <h2>What each stream does</h2>
      <Bars rows={streams} label="What each stream does" />
      {beside.length > 0 && (
        <>
          <h2>What computation hides</h2>
          <Bars rows={beside} label="What computation hides" />
        </>
      )}
    </>
  )
}

/** Looks of the kinds that a path is made of: where they are what a class is, that of the class. */
const PATH_LOOKS: Record<string, string> = {
  host: 'class-host',
  launch: 'class-host',
  kernel: 'class-compute',
  copy: 'class-transfer',
  communication: 'class-communication',
  dependency: 'class-dependency',
  wait: 'class-unknown',
  latency: 'path-latency',
}
const PATH_WORDS: Record<string, string> = {
  host: 'the host works: Python, operators, launch calls',
  kernel: CLASS_WORDS.compute.label,
  copy: CLASS_WORDS.transfer.label,
  communication: CLASS_WORDS.communication.label,
  dependency: 'held back by something that the trace does not show',
  wait: 'a blocking wait',
  latency: 'between a launch and its start on an idle device',
}

/** The path of one step in the order of time. */
export function CriticalPath({ measure }: { measure: Measures['critical-path'] }) {
  const { kinds, runs } = measure.path
  const total = Math.max(1, runs.at(-1)?.[1] ?? 1)
  const shares = measure.tables['critical-path'].rows.map(({ kind, meaning, share }) => ({
    look: PATH_LOOKS[String(kind)] ?? 'class-unknown',
    words: `${meaning} ${formatQuantity('share', share)}`,
  }))
  const whole = shares.map(({ words }) => words).join('; ')
  return (
    <figure class="chart">
      <div
        class="path-bar"
        role="img"
        aria-label={`What the step waits for, in the order of time. In all: ${clean(whole, 900)}`}
      >
        {runs.map(([from, to, kind], i) => (
          <span
            key={i}
            class={PATH_LOOKS[kinds[kind]] ?? 'class-unknown'}
            style={{ width: `${((to - from) / total) * 100}%` }}
            title={`${PATH_WORDS[kinds[kind]] ?? kinds[kind]}: ${formatTime(to - from)}, from ${formatTime(from)} on`}
          />
        ))}
      </div>
      <p class="path-ends dim small">
        <span>0 µs</span>
        <span>{formatTime(total)}</span>
      </p>
      <ul class="legend">
        {shares.map(({ look, words }) => (
          <li key={words}>
            <span class={`swatch ${look}`} aria-hidden="true" /> {clean(words)}
          </li>
        ))}
      </ul>
    </figure>
  )
}

const OWNERS = 12

/** Who holds the memory at its peak, the largest first. */
export function Owners({ measure }: { measure: Measure }) {
  const table = measure.tables.memory
  if (!table?.rows.length) return null
  const rows = table.rows.slice(0, OWNERS).map((row) => {
    const at = [row.module, row.annotation, row.step && `step ${row.step}`].filter(Boolean).map(String)
    const bytes = formatBytes(Number(row.bytes))
    return {
      name: String(row.operator),
      parts: [{ size: Number(row.bytes), look: 'bar-plain', what: bytes }],
      note: [bytes, formatQuantity('share', row.share), ...at].join(' · '),
    }
  })
  return (
    <>
      <h2>Who holds it at the peak</h2>
      <Bars rows={rows} label="Who holds the memory at its peak" />
    </>
  )
}
