// Bars one below the other on one scale, each of parts; what each part is stands beside it in words.

import { clean } from '../format'

export interface Part {
  size: number
  /** Class of the style sheet: its colour and pattern. */
  look: string
  what: string
}

export function Bars({ rows, label }: { rows: { name: string; parts: Part[]; note: string }[]; label: string }) {
  const longest = Math.max(1e-9, ...rows.map(({ parts }) => parts.reduce((sum, { size }) => sum + size, 0)))
  return (
    <ul class="bars" aria-label={label}>
      {rows.map(({ name, parts, note }, i) => (
        <li key={i}>
          <span class="bar-name">
            <bdi>{clean(name, 120)}</bdi>
          </span>
          <span class="bar-track" aria-hidden="true">
            {parts
              .filter(({ size }) => size > 0)
              .map(({ size, look, what }, k) => (
                <span key={k} class={look} style={{ width: `${(size / longest) * 100}%` }} title={clean(what, 200)} />
              ))}
          </span>
          <span class="bar-note dim small">
            <bdi>{clean(note, 200)}</bdi>
          </span>
        </li>
      ))}
    </ul>
  )
}
