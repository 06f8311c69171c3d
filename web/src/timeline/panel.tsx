// Below the timeline: what is selected, in plain words; a measured stretch; a finding; or what to look for.

import type { ComponentChildren } from 'preact'
import type { Finding } from '../data/report'
import type { Timeline } from '../data/timeline'
import { clean, formatQuantity, formatTime } from '../format'
import { CLASS_WORDS, ClassBar } from '../parts/classes'
import { hashOf } from '../route'
import { Prose, why } from '../views/findings'
import { type Details, kindWords, type Measured, readable, type SliceRef } from './details'
import type { Marks } from './marks'
import { colourKeys } from './palette'

interface SliceProps {
  timeline: Timeline
  details: Details
  onGo: (slice: SliceRef) => void
}

export function SlicePanel({ timeline, details, onGo }: SliceProps) {
  const { slice, ancestors, launch, launched, launchedTotal, forward, backward, args } = details
  const { extra } = timeline
  const lane = extra.lanes[timeline.rows[slice.row]?.lane]
  const words = kindWords(extra.kinds[slice.kind])
  const step = extra.stepsRecorded ? timeline.stepAt(slice.start, lane?.side !== 'device') : -1
  const wait = launch ? slice.start - launch.start : 0
  return (
    <div class="panel-columns">
      <div>
        <h2 class="slice-name">
          <bdi>{clean(slice.short, 400)}</bdi>
        </h2>
        {slice.short !== slice.name && (
          <p class="small dim mono full-name">
            <bdi>{clean(slice.name, 900)}</bdi>
          </p>
        )}
        <p title={words.hint}>
          {details.waits ? 'a call that waits until the GPU has finished' : words.what}, on{' '}
          {clean(lane?.label ?? '', 80)}
        </p>
        <Facts
          rows={[
            ['start', formatTime(slice.start - extra.span[0])],
            ['duration', formatTime(slice.duration)],
            ...(details.self !== slice.duration ? [['without what it calls', formatTime(details.self)] as const] : []),
            ...(step >= 0 ? [['step', `#${timeline.columns.step_number[step]}`] as const] : []),
            ...(launch
              ? [['waited on the device', `${formatTime(Math.max(0, wait))} after its launch began`] as const]
              : []),
          ]}
        />
      </div>
      <div>
        {args.length > 0 && (
          <>
            <h3>Arguments</h3>
            <dl class="facts args">
              {readable(args).map((arg) => (
                <div key={arg.name} title={clean(arg.meaning)}>
                  <dt>{clean(arg.name)}</dt>
                  <dd>
                    <bdi>{clean(arg.text, 600)}</bdi>
                  </dd>
                </div>
              ))}
            </dl>
          </>
        )}
      </div>
      <div>
        {ancestors.length > 0 && (
          <>
            <h3>{launch ? 'Launched from' : 'Inside'}</h3>
            <ol class="stack-links">
              {ancestors.slice(-14).map((of) => (
                <Go key={of.id} slice={of} onGo={onGo} />
              ))}
              {launch && <Go slice={launch} onGo={onGo} />}
            </ol>
          </>
        )}
        {launched.length > 0 && (
          <>
            <h3>
              Launches {launchedTotal.toLocaleString('en')} piece{launchedTotal > 1 ? 's' : ''} of device work
            </h3>
            <ol class="stack-links">
              {launched.slice(0, 8).map((work) => (
                <Go key={work.id} slice={work} onGo={onGo} />
              ))}
            </ol>
            {launchedTotal > 8 && <p class="small dim">{(launchedTotal - 8).toLocaleString('en')} more not listed</p>}
          </>
        )}
        {forward && (
          <>
            <h3>Backward of</h3>
            <ol class="stack-links">
              <Go slice={forward} onGo={onGo} />
            </ol>
          </>
        )}
        {backward.length > 0 && (
          <>
            <h3>Its backward</h3>
            <ol class="stack-links">
              {backward.slice(0, 4).map((of) => (
                <Go key={of.id} slice={of} onGo={onGo} />
              ))}
            </ol>
          </>
        )}
      </div>
    </div>
  )
}

function Go({ slice, onGo }: { slice: SliceRef; onGo: (slice: SliceRef) => void }) {
  return (
    <li>
      <button type="button" class="link" onClick={() => onGo(slice)} title={clean(slice.name, 600)}>
        <bdi>{clean(slice.short, 90)}</bdi>
      </button>{' '}
      <span class="dim small">{formatTime(slice.duration)}</span>
    </li>
  )
}

function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

export function MeasurePanel({ measured }: { measured: Measured }) {
  const length = measured.to - measured.from
  const busy = Object.entries(measured.classes)
  return (
    <div class="panel-columns">
      <div>
        <h2>{formatTime(length)} measured</h2>
        <Facts
          rows={[
            ['device work', `${measured.deviceSlices.toLocaleString('en')} kernels, copies and sets`],
            ['launches', measured.launches.toLocaleString('en')],
          ]}
        />
        {busy.length > 0 && <ClassBar shares={measured.classes} label="What the device does" />}
        <ul class="plain small">
          {busy
            .sort((a, b) => b[1] - a[1])
            .map(([name, time]) => (
              <li key={name}>
                {CLASS_WORDS[name]?.label ?? clean(name)}: {formatTime(time)} ({formatQuantity('share', time / length)})
              </li>
            ))}
        </ul>
      </div>
      <Top title="Most device time" rows={measured.kernels} />
      <Top title="Most operator time (outer ones count their inner ones)" rows={measured.operators} />
    </div>
  )
}

function Top({ title, rows }: { title: string; rows: { name: string; count: number; time: number }[] }) {
  if (rows.length === 0) return <div />
  return (
    <div>
      <h3>{title}</h3>
      <ol class="plain small ranked">
        {rows.map((row) => (
          <li key={row.name} title={clean(row.name, 600)}>
            <span class="number">{formatTime(row.time)}</span>
            <span class="number dim">{row.count.toLocaleString('en')} ×</span>
            <bdi class="mono">{clean(row.name, 200)}</bdi>
          </li>
        ))}
      </ol>
    </div>
  )
}

interface FindingProps {
  finding: Finding
  place: number
  marks: Marks | null
  onPlace: (place: number) => void
}

export function FindingPanel({ finding, place, marks, onPlace }: FindingProps) {
  const { places } = finding
  const at = places[place]
  const gain = finding.recoverable_us_per_step
  return (
    <div class="panel-columns wide">
      <div>
        <h2>
          <span class="code">{clean(finding.code)}</span> {clean(finding.name)}
          <span class="dim small"> {gain > 0 ? `about ${formatTime(gain * 1e3)} per step` : why(finding)}</span>
        </h2>
        <p>{clean(finding.title, 700)}</p>
        {at && (
          <p class="small">
            {at.events > 0 ? `${at.events.toLocaleString('en')} events` : 'the whole step'}
            {at.step >= 0 && ` in step #${at.step}`}, {formatTime(at.end_ns - at.start_ns)}
          </p>
        )}
        {marks && (
          <p class="small" data-testid="marked">
            <span class="swatch marked" /> {underlined(marks)}
          </p>
        )}
      </div>
      <div>
        {places.length > 1 && (
          <p>
            <button type="button" disabled={place <= 0} onClick={() => onPlace(place - 1)}>
              ‹ Previous place
            </button>{' '}
            {place + 1} of {places.length}{' '}
            <button type="button" disabled={place >= places.length - 1} onClick={() => onPlace(place + 1)}>
              Next place ›
            </button>
          </p>
        )}
        {finding.fix && (
          <p class="small">
            <Prose text={finding.fix} />
          </p>
        )}
        <p>
          <a href={hashOf({ view: 'overview', finding: finding.code })}>The finding with its evidence</a>
          {gain > 0 && (
            <>
              {' · '}
              <a href={hashOf({ view: 'predicted', finding: finding.code })}>The step with it fixed</a>
            </>
          )}
        </p>
      </div>
    </div>
  )
}

function underlined({ row, total }: Marks): string {
  const shown = row.length.toLocaleString('en')
  return row.length < total
    ? `The ${shown} longest of its ${total.toLocaleString('en')} events are underlined in the lanes.`
    : total === 1
      ? 'Its one event is underlined in the lanes.'
      : `All of its ${shown} events are underlined in the lanes.`
}

export function Guide({ timeline, findings }: { timeline: Timeline; findings: Finding[] }) {
  const shown = findings.filter((f) => f.places.length > 0 && f.kind !== 'regime').slice(0, 8)
  return (
    <div class="panel-columns">
      <div>
        <h2>How to read this</h2>
        {timeline.extra.device === '' ? (
          <p>
            No GPU took part in this recording. Every lane is a <b>thread</b>; a call lies below the one that made it,
            and is as wide as it took. Look for what is wide, and for what is repeated. Select a call to see what it was
            given.
          </p>
        ) : (
          <>
            <p>
              The <b>host</b> runs ahead and hands work over; the <b>GPU</b> does it later, in order. Select a call to
              see the work that it launched, or a kernel to see who launched it.
            </p>
            <p>
              The lane <b>what the GPU does</b> says for every moment whether it computes, or whom it waits for. Long
              stretches of “waits for the host” mean that Python is too slow; faster kernels would change nothing there.
            </p>
          </>
        )}
      </div>
      <div>
        <h3>Moving about</h3>
        <dl class="facts keys">
          {[
            ['W S, Ctrl + wheel', 'zoom in and out'],
            ['A D, drag', 'move'],
            ['Shift + drag', 'measure a stretch; or drag on the ruler'],
            ['F', 'show the selection whole, or everything'],
            ['/', 'search; Enter for the next match'],
            ['← → ↑ ↓', 'previous, next, outer, inner slice'],
            ['M', 'measure the selection'],
            ['P', 'keep the lanes of the GPU in sight'],
            ['Esc', 'clear'],
          ].map(([key, what]) => (
            <div key={key}>
              <dt>{key}</dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </div>
      <div>
        {shown.length > 0 && (
          <>
            <h3>What was found here</h3>
            <ul class="plain">
              {shown.map((f) => (
                <li key={f.code}>
                  <a href={hashOf({ view: 'timeline', finding: f.code })}>
                    <span class="code">{f.code}</span> {clean(f.name)}
                  </a>
                </li>
              ))}
            </ul>
          </>
        )}
        <ColourKey timeline={timeline} />
        <Left timeline={timeline} />
      </div>
    </div>
  )
}

/** What the colours of the lanes stand for, as far as they are there. */
function ColourKey({ timeline }: { timeline: Timeline }) {
  const keys = colourKeys(timeline)
  if (keys.length === 0) return null
  return (
    <details class="small" open>
      <summary>Colours</summary>
      <ul class="legend" data-testid="colours">
        {keys.map(({ colour, what }) => (
          <li key={what}>
            <span class="swatch" style={{ background: colour }} /> {what}
          </li>
        ))}
      </ul>
    </details>
  )
}

/** What the timeline does not show, by kind. */
export function Left({ timeline }: { timeline: Timeline }) {
  const { omitted, args, seriesOmitted } = timeline.extra
  const entries = Object.entries(omitted ?? {})
  const notes: string[] = []
  if (entries.length) {
    const total = entries.reduce((sum, [, n]) => sum + n, 0)
    const kinds = entries.map(([kind, n]) => `${n.toLocaleString('en')} ${kind}`).join(', ')
    notes.push(`${total.toLocaleString('en')} slices not shown, the shortest ones: ${kinds}`)
  }
  for (const [table, info] of Object.entries(args ?? {}))
    if (info.omitted)
      notes.push(`${info.omitted.toLocaleString('en')} rows of ${table.replace('_', ' ')} not in the page`)
  if (seriesOmitted) notes.push(`${seriesOmitted.toLocaleString('en')} counters not shown`)
  for (const { info } of timeline.series)
    if (info.total > info.points)
      notes.push(
        `${info.label}: ${info.total.toLocaleString('en')} points drawn as ${info.points.toLocaleString('en')}`,
      )
  return notes.length ? (
    <p class="small dim" data-testid="left-out">
      {notes.map((note) => clean(note, 300)).join('; ')}.
    </p>
  ) : null
}
