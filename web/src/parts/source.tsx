// Lines of the program around a frame, where whoever made the page asked for them. All text is untrusted.

import type { TreeExtra } from '../data/tree'
import { clean } from '../format'

interface Props {
  source: NonNullable<TreeExtra['source']>
  /** Row of the frame's name. */
  name: number
}

/** The lines around the one where a frame's function begins; or that there are none. */
export function SourcePane({ source, name }: Props) {
  const excerpt = source.excerpts[name]
  if (!excerpt) return <p class="dim small">The page holds no source lines of this frame.</p>
  const [first, line, lines] = excerpt
  const width = String(first + lines.length).length
  return (
    <figure class="source" aria-label="Source">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by the keyboard */}
      <pre tabIndex={0}>
        {lines.map((text, i) => {
          const number = first + i
          return (
            <span key={number} class={number === line ? 'line here' : 'line'}>
              <span class="line-number">{`${number === line ? '▸' : ' '}${String(number).padStart(width)} `}</span>
              {text}
            </span>
          )
        })}
      </pre>
      <figcaption class="dim small">
        As the file stood when the page was made; the profiler names the line where the function begins.
      </figcaption>
    </figure>
  )
}

/** How many frames have no lines in the page, and why. */
export function omittedText(omitted: Record<string, number>): string {
  const reasons = Object.entries(omitted)
  if (reasons.length === 0) return ''
  const parts = reasons.map(([reason, count]) => `${count.toLocaleString('en')} (${clean(reason, 120)})`)
  return ` Frames of the program left out: ${parts.join(', ')}.`
}
