// How durations are distributed, on a logarithmic axis.

import { formatTime } from '../format'

const WIDTH = 640
const HEIGHT = 120

interface Props {
  low: number
  high: number
  counts: number[]
  /** What the durations are of. */
  of: string
}

/** Counts in bins that grow by one factor. */
export function binned(durations: number[], bins: number): Omit<Props, 'of'> {
  const low = Math.max(1, Math.min(...durations))
  const high = Math.max(low * 1.001, ...durations)
  const counts = new Array<number>(bins).fill(0)
  const scale = bins / Math.log(high / low)
  for (const one of durations) counts[Math.min(bins - 1, Math.floor(Math.log(Math.max(one, low) / low) * scale))]++
  return { low, high, counts }
}

export function Histogram({ low, high, counts, of }: Props) {
  const most = Math.max(1, ...counts)
  const total = counts.reduce((a, b) => a + b, 0)
  const bar = WIDTH / counts.length
  const edge = (i: number) => low * (high / low) ** (i / counts.length)
  return (
    <figure class="chart">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT + 20}`}
        role="img"
        aria-label={`Durations of ${total} ${of}, from ${formatTime(low)} to ${formatTime(high)}`}
      >
        <title>Durations</title>
        {counts.map((count, i) => {
          const height = (count / most) * (HEIGHT - 14)
          return (
            <rect key={i} class="bar" x={i * bar + 1} y={HEIGHT - height} width={bar - 2} height={height}>
              <title>{`${count} from ${formatTime(edge(i))} to ${formatTime(edge(i + 1))}`}</title>
            </rect>
          )
        })}
        <line class="axis" x1="0" x2={WIDTH} y1={HEIGHT + 0.5} y2={HEIGHT + 0.5} />
        <text x="0" y={HEIGHT + 15}>
          {formatTime(low)}
        </text>
        <text x={WIDTH / 2} y={HEIGHT + 15} text-anchor="middle">
          {formatTime(edge(counts.length / 2))}
        </text>
        <text x={WIDTH} y={HEIGHT + 15} text-anchor="end">
          {formatTime(high)}
        </text>
        <text x="0" y="10">
          {most} at most, {total} in all
        </text>
      </svg>
      <figcaption class="dim small">Durations of the {of}, logarithmic scale</figcaption>
    </figure>
  )
}
