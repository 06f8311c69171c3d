// The profiler's tables, whole: sorted, filtered, copied; durations of one kernel; memory over time.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { failure, tables as loaded, timeline, want } from '../data/load'
import type { Measure, TableBlock, Value } from '../data/report'
import type { Timeline } from '../data/timeline'
import { clean } from '../format'
import { Histogram } from '../parts/histogram'
import { CriticalPath, Overlap, Owners, Statements } from '../parts/measures'
import { MemoryCurve } from '../parts/memory'
import { distinctNames } from '../parts/names'
import { Roofline } from '../parts/roofline'
import { DataTable } from '../parts/table'
import { go, hashOf } from '../route'

const WORDS: Record<string, string> = {
  cpu: 'On the CPU',
  kernels: 'Kernels',
  operators: 'Operators',
  api: 'API calls',
  copies: 'Copies and sets',
  roofline: 'Roofline',
  overlap: 'Overlap',
  'critical-path': 'Critical path',
  memory: 'Memory',
}

export function Tables({ table, server }: { table: string; server: string }) {
  const extra = loaded.value
  useEffect(() => want('tables', server), [server])
  const [row, setRow] = useState<Record<string, Value> | null>(null)
  const picked = row ? String(row.name ?? row.operator ?? '') : ''
  const lines = timeline.value
  const labels = useMemo(
    () => labelsOf(extra?.tables[table || 'kernels'] ?? extra?.tables.operators, lines),
    [extra, lines, table],
  )
  if (!extra)
    return (
      <main id="main" class="loading">
        {failure.value ? 'The tables are not available.' : server ? 'Adding up the tables …' : 'Unpacking the tables …'}
      </main>
    )
  const memory = timeline.value?.series.some(
    (s) => s.info.key.startsWith('allocated') || s.info.key.startsWith('reserved'),
  )
  const { measures } = extra
  const keys = Object.keys(WORDS).filter(
    (key) =>
      extra.tables[key]?.rows.length ||
      key in measures ||
      (key === 'memory' && memory) ||
      (key === 'roofline' && extra.roofline),
  )
  if (keys.length === 0)
    return (
      <main id="main" class="loading">
        The trace holds nothing to put into a table.
      </main>
    )
  const key = keys.includes(table) ? table : keys[0]
  const block = extra.tables[key]
  const path = key === 'critical-path' ? measures['critical-path'] : undefined
  const histogram = key === 'kernels' ? extra.histograms[picked] : undefined
  return (
    <main id="main" class="page wide">
      <h1>{WORDS[key]}</h1>
      <div class="tabs" role="tablist" aria-label="Tables">
        {keys.map((of) => (
          <button
            key={of}
            type="button"
            role="tab"
            aria-selected={of === key}
            onClick={() => {
              setRow(null)
              go({ view: 'tables', table: of })
            }}
          >
            {WORDS[of]}
          </button>
        ))}
      </div>
      {picked && block && (
        <section class="picked" aria-live="polite" aria-label="Selected row">
          <p class="slice-name">
            <bdi>{clean(picked, 400)}</bdi>
          </p>
          {histogram && (
            <Histogram low={histogram[0]} high={histogram[1]} counts={histogram[2]} of="runs of this kernel" />
          )}
          {key === 'kernels' && !histogram && (
            <p class="dim small">Ran once, or is not among the kernels whose durations are in the page.</p>
          )}
          <p>
            <a class="button" href={hashOf({ view: 'timeline', search: picked.slice(0, 150) })}>
              Find in the timeline
            </a>
          </p>
        </section>
      )}
      {block && (
        <DataTable
          key={key}
          block={block}
          tools
          shorten={(text, column) => (column.key === 'name' ? (labels.get(text) ?? text) : text)}
          onRow={setRow}
          current={(of) => of === row}
        />
      )}
      {key in measures && <Statements measure={measures[key as keyof typeof measures] as Measure} />}
      {key === 'overlap' && measures.overlap && <Overlap measure={measures.overlap} />}
      {path && <CriticalPath measure={path} />}
      {path && row && (
        <p>
          <a
            class="button"
            href={hashOf({ view: 'timeline', range: stretch(path.path.start + Number(row.start), Number(row.time)) })}
          >
            {clean(String(row.what), 80)} in the timeline
          </a>
        </p>
      )}
      {path && (
        <DataTable block={path.tables['critical-path-segments']} tools onRow={setRow} current={(of) => of === row} />
      )}
      {key === 'memory' && timeline.value && <MemoryCurve timeline={timeline.value} />}
      {key === 'memory' && measures.memory && <Owners measure={measures.memory} />}
      {key === 'memory' && measures.memory?.tables['memory-steps'] && (
        <>
          <h2>{clean(measures.memory.tables['memory-steps'].title)}</h2>
          <DataTable block={measures.memory.tables['memory-steps']} tools />
        </>
      )}
      {key === 'roofline' && extra.roofline && <Roofline data={extra.roofline} />}
      {block && key !== 'memory' && <p class="dim small">{note(key)}</p>}
    </main>
  )
}

/** A stretch of time with a little room around it. */
const stretch = (start: number, length: number): [number, number] => [
  Math.max(0, start - length / 4),
  start + length * 1.25,
]

/** Long template arguments say little in a table, unless they tell two rows apart; the tooltip has the whole name. */
function labelsOf(block: TableBlock | undefined, lines: Timeline | null): Map<string, string> {
  const names = (block?.rows ?? []).map((row) => String(row.name ?? ''))
  return distinctNames(names, (name) => (name.length < 90 ? name : (lines?.shortOfName(name) ?? name)))
}

function note(key: string): string {
  switch (key) {
    case 'cpu':
      return 'Own time per steady step, without what an operator called; “computes” is known where shapes and types are.'
    case 'operators':
      return '“Host self” leaves out what an operator called; “device total” counts everything that was launched inside it.'
    case 'kernels':
      return 'Times are those of the device. Select a kernel to see how its durations are distributed.'
    case 'api':
      return 'A driver call inside a runtime call is in the total of both rows, but only in the self time of one.'
    default:
      return 'Bandwidth is bytes moved over the time that the device took.'
  }
}
