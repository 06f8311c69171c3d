// The first screen: the verdict, whether to trust it, where the time of a step goes, what to do about it.

import { useEffect } from 'preact/hooks'
import { tree } from '../data/load'
import type { Overview as Facts, Finding, Note, Report } from '../data/report'
import { clean, formatDollars, formatJoules, formatQuantity, formatTime, versionText } from '../format'
import { ClassBar, ClassLegend } from '../parts/classes'
import { Copy } from '../parts/copy'
import { filled } from '../parts/evidence'
import { binned, Histogram } from '../parts/histogram'
import { DataTable } from '../parts/table'
import { hashOf } from '../route'
import { Findings, Prose } from './findings'

interface OverviewProps {
  report: Report
  facts: Facts
  finding: string
  /** The report in forty lines of Markdown. */
  summary: string
}

export function Overview({ report, facts, finding, summary }: OverviewProps) {
  useEffect(() => {
    if (finding) document.getElementById(`finding-${finding}`)?.scrollIntoView({ block: 'center' })
  }, [finding])
  return (
    <main class="overview" id="main">
      <section class="verdict" aria-label="Verdict">
        <p class="eyebrow">
          <bdi>{what(report)}</bdi>
        </p>
        <h1>{clean(report.verdict, 1200)}</h1>
        <StepTime report={report} />
        {Object.keys(report.regime.shares).length > 0 && (
          <>
            <ClassBar shares={report.regime.shares} label="Where the time of a step goes" />
            <ClassLegend names={Object.keys(report.regime.shares).filter((name) => report.regime.shares[name] > 0)} />
          </>
        )}
        {report.statements.map((statement, i) => (
          <p key={i}>{clean(filled(statement.template, statement.values), 600)}</p>
        ))}
        <p class="tools">
          <Copy text={summary} label="Copy summary" />
        </p>
      </section>
      <Trust report={report} />
      <Findings report={report} current={finding} />
      <Steps report={report} facts={facts} />
      {report.chain && (
        <section>
          <h2>How a kernel gets started</h2>
          <p class="dim">
            Indentation is nesting. “Launch to start” is how long the work waited on the device after its launch began.
          </p>
          <DataTable block={report.chain} />
        </section>
      )}
      <Environment report={report} facts={facts} />
    </main>
  )
}

/** What was recorded, in a few words: the verdict below says the rest. */
function what({ source, steps }: Report): string {
  const card = source.device || (source.devices > 0 ? 'a device that the file does not name' : 'no GPU')
  return [
    clean(card, 80),
    steps.count === 0 ? 'no steps marked' : steps.count === 1 ? '1 step' : `${steps.count.toLocaleString('en')} steps`,
    `${source.events.toLocaleString('en')} events`,
  ].join(' · ')
}

function StepTime({ report }: { report: Report }) {
  const { regime } = report
  if (!regime.step_us) return null
  if (!regime.unprofiled)
    return (
      <p class="dim">
        About {formatTime(regime.step_us * 1e3)} per step without the profiler, computed (
        {formatTime(regime.step_low_us * 1e3)} to {formatTime(regime.step_high_us * 1e3)}); as recorded{' '}
        {formatTime(regime.recorded_step_us * 1e3)}
        {regime.as_recorded !== regime.name && `, which would look ${clean(regime.as_recorded)}`}.{' '}
        <code class="option">--step-time</code> makes it exact.{costOf(report)}
      </p>
    )
  return (
    <p class="dim">
      Step time without the profiler {formatTime(regime.step_us * 1e3)}; as recorded{' '}
      {formatTime(regime.recorded_step_us * 1e3)}, {formatQuantity('ratio', regime.recorded_step_us / regime.step_us)}
      {regime.as_recorded !== regime.name && `, which would look ${clean(regime.as_recorded)}`}.{costOf(report)}
    </p>
  )
}

/** What a step costs in energy and money, as a sentence. */
function costOf({ cost }: Report): string {
  const parts: string[] = []
  if (cost && cost.joules_per_step > 0)
    parts.push(`${formatJoules(cost.joules_per_step)} per step (${Math.round(cost.watts)} W)`)
  if (cost && cost.dollars_per_hour > 0)
    parts.push(
      `${formatDollars(cost.dollars_per_million_steps)} per million steps (${formatDollars(cost.dollars_per_hour)} per hour)`,
    )
  return parts.length ? ` It costs ${parts.join(' and ')}.` : ''
}

const MARKS: Record<Note['level'], [string, string]> = {
  bad: ['✗', 'wrong'],
  warn: ['!', 'look here'],
  info: ['·', 'worth knowing'],
  ok: ['✓', 'fine'],
}

function Trust({ report }: { report: Report }) {
  const doubts = report.findings.filter((f) => f.kind === 'validity')
  return (
    <section aria-labelledby="trust">
      <h2 id="trust">Can you trust it?</h2>
      <ul class="notes">
        {doubts.map((f) => (
          <Doubt key={f.code} finding={f} />
        ))}
        {report.health.map((note, i) => (
          <li key={i} class={`note level-${note.level}`}>
            <span class="mark" role="img" aria-label={MARKS[note.level][1]}>
              {MARKS[note.level][0]}
            </span>
            <span>{clean(note.text, 700)}</span>
          </li>
        ))}
      </ul>
    </section>
  )
}

function Doubt({ finding }: { finding: Finding }) {
  return (
    <li class="note level-warn" id={`finding-${finding.code}`}>
      <span class="mark" role="img" aria-label="look here">
        !
      </span>
      <span>
        <span class="code">{clean(finding.code)}</span> <Prose text={finding.title.slice(0, 700)} />{' '}
        {finding.fix && (
          <span class="dim">
            <Prose text={finding.fix} />{' '}
          </span>
        )}
        {finding.places.length > 0 && <a href={hashOf({ view: 'timeline', finding: finding.code })}>Show</a>}
      </span>
    </li>
  )
}

/** So many steps say something about how they are distributed. */
const ENOUGH = 8

function Steps({ report, facts }: { report: Report; facts: Facts }) {
  if (!report.steps.count) return null
  const shown = facts.steps.slice(0, 60)
  const longest = Math.max(1, ...shown.map((row) => row.reduce((a, b) => a + b, 0)))
  const lengths = facts.steps.map((row) => row.reduce((a, b) => a + b, 0)).filter((length) => length > 0)
  const hasBars = Object.keys(report.regime.shares).length > 0
  return (
    <section aria-labelledby="steps">
      <h2 id="steps">The steps</h2>
      {hasBars && (
        <>
          <p class="dim">
            What the device does in each recorded step, from the end of the previous step's work to the end of its own.
            Steps marked * are not used in statistics.
          </p>
          <ol class="step-bars">
            {shown.map((row, i) => {
              const total = row.reduce((a, b) => a + b, 0)
              const shares = Object.fromEntries(facts.classes.map((name, c) => [name, row[c]]))
              return (
                <li key={i}>
                  <span class="step-name">
                    #{facts.stepNumbers[i]}
                    {facts.steady[i] ? '' : ' *'}
                  </span>
                  <span class="step-track">
                    <span class="step-length" style={{ width: `${(total / longest) * 100}%` }}>
                      <ClassBar shares={shares} label={`Step ${facts.stepNumbers[i]}`} />
                    </span>
                  </span>
                  <span class="step-time">{formatTime(total)}</span>
                  <span class="step-regime dim">{clean(report.regime.per_step[i] ?? '')}</span>
                </li>
              )
            })}
          </ol>
          {facts.stepNumbers.length + facts.stepsOmitted > shown.length && (
            <p class="dim small">
              {(facts.stepNumbers.length + facts.stepsOmitted - shown.length).toLocaleString('en')} more steps not shown
              here; the timeline has them
            </p>
          )}
        </>
      )}
      {lengths.length >= ENOUGH && (
        <details>
          <summary>How long the steps are</summary>
          <Histogram {...binned(lengths, 24)} of="steps" />
        </details>
      )}
      <details>
        <summary>Numbers of each step</summary>
        <DataTable block={report.steps.table} tools />
      </details>
      {report.steps.gaps && (
        <details>
          <summary>{clean(report.steps.gaps.title)}</summary>
          <DataTable block={report.steps.gaps} tools />
        </details>
      )}
    </section>
  )
}

function Environment({ report, facts }: { report: Report; facts: Facts }) {
  const { source } = report
  const recorded = Object.entries(source.recorded)
  const rows: [string, string][] = [
    ['file', source.path],
    ['size', `${formatQuantity('bytes', source.bytes)}, ${formatQuantity('count', source.events)} events`],
    [
      'device',
      source.devices > 0
        ? `${source.device || 'not named in the file'}${source.devices > 1 ? ` (${source.devices} used)` : ''}`
        : source.device || 'none',
    ],
    ...Object.entries(source.software).map(([name, value]): [string, string] => [name, versionText(name, value)]),
    [
      'recorded',
      recorded
        .filter(([, on]) => on)
        .map(([name]) => name.replace('_', ' '))
        .join(', ') || 'none of shapes, stacks, modules, memory',
    ],
    [
      'not recorded',
      recorded
        .filter(([, on]) => !on)
        .map(([name]) => name.replace('_', ' '))
        .join(', ') || 'nothing is missing',
    ],
    ...facts.environment,
  ]
  const needs = report.checks.filter((check) => check.status === 'needs_capture')
  const errors = report.checks.filter((check) => check.status === 'error')
  const clear = report.checks.filter((check) => check.status === 'clear' || check.status === 'not_applicable')
  return (
    <section aria-labelledby="environment">
      <h2 id="environment">What was recorded</h2>
      <dl class="facts">
        {rows.map(([name, value], i) => (
          <div key={i}>
            <dt>{clean(name.replaceAll('_', ' '), 80)}</dt>
            <dd>
              <bdi>{clean(value, 500)}</bdi>
            </dd>
          </div>
        ))}
      </dl>
      {needs.length > 0 && (
        <>
          <h3>To know more, record</h3>
          <ul>
            {needs.map((check) => (
              <li key={check.code}>
                <span class="code">{check.code}</span> <Prose text={check.reason.slice(0, 400)} />
              </li>
            ))}
          </ul>
        </>
      )}
      {errors.map((check) => (
        <p key={check.code} class="note level-bad">
          <span class="mark">✗</span> {check.code} {clean(check.reason, 400)}
        </p>
      ))}
      {clear.length > 0 && (
        <details>
          <summary>{clear.length} further checks found nothing</summary>
          <ul class="small">
            {clear.map((check) => (
              <li key={check.code}>
                <span class="code">{check.code}</span> {clean(check.name)}:{' '}
                <Prose text={(check.reason || check.status.replace('_', ' ')).slice(0, 400)} />
              </li>
            ))}
          </ul>
        </details>
      )}
      <p class="dim small">
        lanewise {clean(report.version)}. This page loads nothing.{' '}
        {tree.value && (tree.value.extra.source ? 'It holds lines of source code.' : 'It holds no source code.')}
      </p>
    </section>
  )
}
