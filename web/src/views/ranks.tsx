// Ranks of a job: what is said of them, a heat map of ranks and steps, and the way to the page of each rank.

import { type HeatRow, heatRows, type JobData, type JobRank, strength } from '../data/job'
import type { TextBlock, Value } from '../data/report'
import { clean, formatQuantity, formatTime } from '../format'
import { DataTable } from '../parts/table'
import { Top } from '../parts/top'
import { Wide } from '../parts/wide'
import { Prose } from './findings'
import { Locked } from './ranks-in-time'

const WIDTH = 1000
const LABEL = 150
const MOST_ROWS = 128
const NAMES = ['ranks', 'excess', 'findings', 'what_if', 'communication', 'nodes', 'pipelines', 'clocks']

export function Ranks({ job }: { job: JobData }) {
  const names = [...NAMES, ...Object.keys(job.tables).filter((name) => !NAMES.includes(name))]
  const [first, ...rest] = job.told
  return (
    <>
      <Top file={job.name} />
      <main id="main" class="page ranks">
        <p class="eyebrow">{job.ranks.length.toLocaleString('en')} ranks of one job</p>
        {first && (
          <h1>
            <Prose text={sentence(first)} />
          </h1>
        )}
        <ul class="told">
          {rest.map((block, i) => (
            <li key={i}>
              <Prose text={sentence(block)} />
            </li>
          ))}
        </ul>
        <Heat job={job} />
        {job.together && <Locked job={job} together={job.together} />}
        {names
          .filter((name) => job.tables[name])
          .map((name) => (
            <section key={name} class="chart">
              <h2>{clean(job.tables[name].title, 120)}</h2>
              {name === 'ranks' ? <RankTable job={job} /> : <DataTable block={job.tables[name]} />}
            </section>
          ))}
      </main>
    </>
  )
}

function sentence(block: TextBlock): string {
  return clean(
    block.template.replace(/\{(\w+)\}/g, (whole, name) => {
      const found = block.values[name]
      return found ? formatQuantity(found.type, found.value) : whole
    }),
    1000,
  )
}

function Heat({ job }: { job: JobData }) {
  const rows = heatRows(job.ranks, MOST_ROWS)
  const columns = Math.max(1, ...rows.map((row) => row.more.length))
  const cell = (WIDTH - LABEL) / columns
  const high = Math.max(6, Math.min(22, Math.floor(900 / rows.length)))
  const many = rows.length < job.ranks.length
  return (
    <section class="chart">
      <h2>Own work beside the median rank, step by step</h2>
      <Wide label="Own work of each rank and step">
        <svg viewBox={`0 0 ${WIDTH} ${rows.length * high + 18}`}>
          <title>{`Heat map of ${rows.length} rows of ranks and ${columns} steps`}</title>
          {rows.map((row, i) => (
            <Row key={i} row={row} at={i} high={high} cell={cell} job={job} />
          ))}
          <text x={LABEL} y={rows.length * high + 13}>
            {job.steps.length ? `step ${job.steps[0]}` : 'first step'}
          </text>
          <text x={WIDTH} y={rows.length * high + 13} text-anchor="end">
            {job.steps.length ? `step ${job.steps[job.steps.length - 1]}` : 'last step'}
          </text>
        </svg>
      </Wide>
      <p class="dim small">
        The darker, the more a rank does by itself than the median rank in that step; full at a tenth of the step.
        {many && ` Each row stands for up to ${rows[0].ranks.length} ranks, and shows the one that does most.`} A rank
        with a page of its own is a link to it.
      </p>
    </section>
  )
}

function Row(props: { row: HeatRow; at: number; high: number; cell: number; job: JobData }) {
  const { row, at, high, cell, job } = props
  const y = at * high
  const name = nameOf(row.ranks)
  const late = row.ranks.some((one) => one.late)
  const page = row.ranks.length === 1 ? row.ranks[0].page : ''
  const label = (
    <text class={late ? 'late' : undefined} x={LABEL - 8} y={y + high / 2 + 4} text-anchor="end">
      {name}
      {late ? ' late' : ''}
    </text>
  )
  return (
    <g>
      {high >= 12 || late ? page ? <a href={page}>{label}</a> : label : null}
      {row.more.map((more, step) => {
        if (more === null) return null
        const value = strength(more, job.step_ns)
        const number = job.steps[step] ?? step
        return (
          <rect
            key={step}
            class={value < 0 ? 'less' : 'more'}
            x={LABEL + step * cell}
            y={y}
            width={Math.max(1, cell - 1)}
            height={high - 1}
            fill-opacity={Math.max(0.05, Math.abs(value))}
          >
            <title>
              {name}, step {number}: {more < 0 ? `${formatTime(-more)} less` : `${formatTime(more)} more`} than the
              median rank
            </title>
          </rect>
        )
      })}
    </g>
  )
}

function nameOf(ranks: JobRank[]): string {
  const [first, last] = [ranks[0].rank, ranks[ranks.length - 1].rank]
  return clean(ranks.length === 1 ? `rank ${first}` : `ranks ${first} to ${last}`, 40)
}

function RankTable({ job }: { job: JobData }) {
  const pages = new Map(job.ranks.map((one) => [one.rank, one.page]))
  const some = job.ranks.some((one) => one.page)
  return (
    <>
      {some && <p class="dim small">A row leads to the page of that rank, where there is one.</p>}
      <DataTable
        block={job.tables.ranks}
        tools
        {...(some && {
          onRow: (row: Record<string, Value>) => {
            const page = pages.get(String(row.rank))
            if (page) location.href = page
          },
        })}
      />
    </>
  )
}
