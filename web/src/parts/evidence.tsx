// Evidence blocks of a finding.

import type { EvidenceBlock } from '../data/report'
import { clean, formatQuantity } from '../format'
import { DataTable } from './table'

export function Evidence({ block }: { block: EvidenceBlock }) {
  switch (block.type) {
    case 'table':
      return (
        <figure class="evidence">
          <figcaption>{clean(block.title)}</figcaption>
          <DataTable block={block} />
        </figure>
      )
    case 'text':
      return <p class="evidence">{clean(filled(block.template, block.values), 1200)}</p>
    case 'stack':
      return (
        <figure class="evidence">
          <figcaption>{clean(block.title)}</figcaption>
          <ol class="stack">
            {block.frames.map((frame, i) => (
              <li key={i}>
                <bdi>{clean(frame, 200)}</bdi>
              </li>
            ))}
          </ol>
        </figure>
      )
  }
}

/** A template with its values in; an unknown placeholder stays as it is. */
export function filled(template: string, values: Record<string, { type: string; value: unknown }>): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(values, name) ? formatQuantity(values[name].type, values[name].value) : whole,
  )
}
