// Findings as cards: what, what it costs, what to gain, how to fix it, the evidence, and the way to its place.

import type { Finding, Report } from '../data/report'
import { clean, formatDollars, formatJoules, formatQuantity, formatTime } from '../format'
import { Evidence } from '../parts/evidence'
import { hashOf } from '../route'

export function Findings({ report, current }: { report: Report; current: string }) {
  const shown = report.findings.filter((f) => f.kind !== 'validity' && f.kind !== 'regime')
  const on = shown.filter(helps)
  const rest = shown.filter((f) => !on.includes(f))
  const total = report.regime.step_us
  return (
    <section aria-labelledby="what-to-do">
      <h2 id="what-to-do">{on.length ? 'What to do, most to gain first' : 'What to do'}</h2>
      {on.length === 0 && report.source.devices > 0 && (
        <p>
          {report.regime.name === 'undetermined'
            ? 'What would help cannot be told from this recording.'
            : 'No single fix would make the step measurably shorter.'}
        </p>
      )}
      {on.length === 0 && report.source.devices === 0 && (
        <p>
          The diagnoses speak of the time that a GPU loses; this run has none. What the CPU's time goes to is in the{' '}
          <a href={hashOf({ view: 'tables' })}>tables</a> and the <a href={hashOf({ view: 'calls' })}>calls</a>.{' '}
          <code>lanewise.optimize</code> tries other numbers of threads, <code>torch.compile</code> and more, and keeps
          what is measured to be faster.
        </p>
      )}
      <ol class="cards">
        {on.map((finding) => (
          <Card key={finding.code} finding={finding} step={total} open current={finding.code === current} />
        ))}
      </ol>
      {rest.length > 0 && (
        <>
          <h3>Also seen</h3>
          <p class="dim">These would not shorten the step at present.</p>
          <ol class="cards">
            {rest.map((finding) => (
              <li key={finding.code} class="card small-card">
                <details open={finding.code === current}>
                  <summary>
                    <span class="code">{clean(finding.code)}</span> <span class="name">{clean(finding.name)}</span>
                    <span class="gain dim">{why(finding)}</span>
                  </summary>
                  <Card finding={finding} step={total} current={finding.code === current} inner />
                </details>
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  )
}

interface CardProps {
  finding: Finding
  step: number
  open?: boolean
  current: boolean
  /** Inside a card that has its heading already. */
  inner?: boolean
}

export function Card({ finding, step, open, current, inner }: CardProps) {
  const gain = finding.recoverable_us_per_step
  const Box = inner ? 'div' : 'li'
  return (
    <Box class={`${inner ? 'inner' : 'card'}${current ? ' current' : ''}`} id={`finding-${finding.code}`}>
      <header hidden={inner}>
        <span class="code">{clean(finding.code)}</span> <span class="name">{clean(finding.name)}</span>
        <span class="gain">
          {gain > 0 ? (
            <>
              {finding.bound ? 'at most' : 'about'} <b>{formatTime(gain * 1e3)}</b> per step
              {step > 0 && ` (${formatQuantity('share', Math.min(1, gain / step))})`}
              {!finding.bound &&
                `, ${formatTime(finding.low_us_per_step * 1e3)} to ${formatTime(finding.high_us_per_step * 1e3)}`}
              , leaving {formatTime(finding.leaves_us_per_step * 1e3)}
              {saves(finding)}
              {finding.confidence !== 'high' && <span class="dim"> · {finding.confidence} confidence</span>}
            </>
          ) : (
            <span class="dim">{why(finding)}</span>
          )}
        </span>
      </header>
      {gain > 0 && step > 0 && (
        <div class="gain-bar" aria-hidden="true">
          <span style={{ width: `${Math.min(100, (gain / step) * 100)}%` }} />
        </div>
      )}
      <p class="what">{clean(finding.title, 900)}</p>
      <Where finding={finding} />
      {(finding.places.length > 0 || helps(finding)) && (
        <p class="tools">
          {finding.places.length > 0 && (
            <a class="button" href={hashOf({ view: 'timeline', finding: finding.code })}>
              Show in the timeline
            </a>
          )}{' '}
          {helps(finding) && (
            <a class="button" href={hashOf({ view: 'predicted', finding: finding.code })}>
              The step with it fixed
            </a>
          )}
        </p>
      )}
      {finding.fix && (
        <p class="fix">
          <b>Fix</b> <Prose text={finding.fix} />
        </p>
      )}
      {finding.verify && (
        <p class="fix">
          <b>Verify</b> <Prose text={finding.verify} />
        </p>
      )}
      {finding.evidence.length > 0 && (
        <details open={open || current}>
          <summary>Evidence</summary>
          {finding.evidence.map((block, i) => (
            <Evidence key={i} block={block} />
          ))}
        </details>
      )}
    </Box>
  )
}

/** Whether mending it would shorten the step by a measurable part. */
export function helps(finding: Finding): boolean {
  return finding.kind === 'problem' && finding.recoverable_us_per_step > 0
}

/** What mending it would save besides time. */
function saves({ joules_per_step, dollars_per_million_steps }: Finding): string {
  const parts: string[] = []
  if (joules_per_step > 0) parts.push(`at most ${formatJoules(joules_per_step)} per step`)
  if (dollars_per_million_steps > 0) parts.push(`${formatDollars(dollars_per_million_steps)} per million steps`)
  return parts.length ? `; saves ${parts.join(', ')}` : ''
}

export function why(finding: Finding): string {
  if (finding.kind === 'note') return 'less than 1 % of the step'
  if (finding.kind === 'statement') return 'worth knowing'
  if (finding.alone_us_per_step > 0)
    return `${formatTime(finding.alone_us_per_step * 1e3)} by itself, nothing more once those above are fixed`
  return 'would not shorten the step now'
}

/** A sentence with `code` marked as such. */
export function Prose({ text }: { text: string }) {
  return (
    <>
      {text
        .slice(0, 4000)
        .split(/(`[^`]+`)/)
        .map((part, i) =>
          part.startsWith('`') && part.length > 2 ? (
            <code key={i}>{clean(part.slice(1, -1), 400)}</code>
          ) : (
            clean(part, 4000)
          ),
        )}
    </>
  )
}

function Where({ finding }: { finding: Finding }) {
  const at = finding.location
  if (!at) return null
  const place = at.file ? `${at.file}:${at.line}${at.function ? `, in ${at.function}` : ''}` : ''
  return (
    <p class="where">
      {place && <code>{clean(place, 240)}</code>}
      {at.module && (
        <span>
          {' '}
          module <code>{clean(at.module, 120)}</code>
        </span>
      )}
      {at.annotation && (
        <span>
          {' '}
          in <code>{clean(at.annotation, 120)}</code>
        </span>
      )}
      {at.operators.length > 0 && (
        <span class="dim">
          {' '}
          <bdi>{clean(at.operators.join(' › '), 300)}</bdi>
        </span>
      )}
    </p>
  )
}
