// Ranks of a job in one step, side by side: locked on a collective, which ends for all of them at the same moment.

import { useState } from 'preact/hooks'
import { apart, type JobData, lockedOn, type Together } from '../data/job'
import { clean, formatBytes, formatTime } from '../format'
import { Wide } from '../parts/wide'

const WIDTH = 1000
const LABEL = 150
const HIGH = 22

export function Locked({ job, together }: { job: JobData; together: Together }) {
  const { meetings, rows, spans } = together
  const [at, lock] = useState(() => widest(together))
  const ends = lockedOn(together, at)
  const shown = rows.flatMap((row, i) => {
    const end = ends[i]
    return end === null ? [] : [{ rank: job.ranks[row], i, end }]
  })
  const times = shown.flatMap(({ i, end }) => spans[i].flatMap((span) => (span ? [span[0] - end, span[1] - end] : [])))
  const low = Math.min(0, ...times)
  const high = Math.max(low + 1, ...times)
  const x = (time: number) => LABEL + ((time - low) / (high - low)) * (WIDTH - LABEL)
  const label = (meeting: number) =>
    clean(
      `${meeting + 1}: ${meetings[meeting].what}${meetings[meeting].bytes >= 0 ? ` of ${formatBytes(meetings[meeting].bytes)}` : ''}`,
      80,
    )
  return (
    <section class="chart locked">
      <h2>{together.step >= 0 ? `Step ${together.step}` : 'One step'} in time, as recorded</h2>
      <label>
        The end of{' '}
        <select value={at} onChange={(event) => lock(Number(event.currentTarget.value))}>
          {meetings.map((_, i) => (
            <option key={i} value={i}>
              {label(i)}
            </option>
          ))}
        </select>{' '}
        is the same moment for all
      </label>
      <Wide label="Timelines of the ranks">
        <svg viewBox={`0 0 ${WIDTH} ${shown.length * HIGH + 18}`}>
          <title>{`Timelines of ${shown.length} ranks, locked on ${label(at)}`}</title>
          {shown.map(({ rank, i, end }, row) => (
            <g key={rank.rank}>
              <RankName rank={rank} y={row * HIGH + 15} />
              <line class="lane" x1={LABEL} x2={WIDTH} y1={(row + 1) * HIGH - 1} y2={(row + 1) * HIGH - 1} />
              {spans[i].map((span, meeting) => {
                if (!span) return null
                const [from, until] = [span[0] - end, span[1] - end]
                const moves = Math.max(from, until - meetings[meeting].moving)
                return (
                  // biome-ignore lint/a11y/noStaticElementInteractions: the same.
                  <g key={meeting} class={meeting === at ? 'meeting chosen' : 'meeting'} onClick={() => lock(meeting)}>
                    <title>
                      {label(meeting)}: waits {formatTime(moves - from)}, moves {formatTime(until - moves)}
                    </title>
                    <rect class="waits" x={x(from)} y={row * HIGH + 3} width={x(moves) - x(from)} height={HIGH - 7} />
                    <rect
                      class="moves"
                      x={x(moves)}
                      y={row * HIGH + 3}
                      width={Math.max(1.5, x(until) - x(moves))}
                      height={HIGH - 7}
                    />
                  </g>
                )
              })}
            </g>
          ))}
          <line class="lock" x1={x(0)} x2={x(0)} y1={0} y2={shown.length * HIGH} />
          <text x={LABEL} y={shown.length * HIGH + 13}>
            {low < 0 ? `${formatTime(-low)} before` : ''}
          </text>
          <text x={WIDTH} y={shown.length * HIGH + 13} text-anchor="end">
            {high > 0 ? `${formatTime(high)} after` : ''}
          </text>
        </svg>
      </Wide>
      <p class="dim small">
        Pale: a rank waits for the others; full: data moves; between: its own work. The profiler slows each host by its
        own factor, so who comes last here need not be late without it: the map above has that taken off.
        {shown.length < job.ranks.length && ` ${shown.length} of ${job.ranks.length} ranks.`}
        {together.left_out > 0 && ` The last ${together.left_out} of the step are not shown.`}
      </p>
    </section>
  )
}

/** The meeting to which the ranks come furthest apart. */
function widest(together: Together): number {
  let best = 0
  for (let i = 1; i < together.meetings.length; i++) {
    if (apart(together, i) > apart(together, best)) best = i
  }
  return best
}

function RankName({ rank, y }: { rank: JobData['ranks'][number]; y: number }) {
  const name = (
    <text class={rank.late ? 'late' : undefined} x={LABEL - 8} y={y} text-anchor="end">
      {clean(`rank ${rank.rank}`, 40)}
      {rank.late ? ' late' : ''}
    </text>
  )
  return rank.page ? <a href={rank.page}>{name}</a> : name
}
