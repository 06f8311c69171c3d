// A table of typed values: sorted by any column, filtered by text, copied as Markdown; only visible rows are drawn.

import { useMemo, useRef, useState } from 'preact/hooks'
import { toClipboard } from '../clipboard'
import type { TableBlock, TableColumn, Value } from '../data/report'
import { clean, formatQuantity } from '../format'

type Cells = Record<string, Value>

const ROW = 26
const WINDOW = 60

interface Props {
  block: TableBlock
  /** Sorting, filtering and copying; off for short evidence tables. */
  tools?: boolean
  /** Short form of a text value, with the full one as its tooltip. */
  shorten?: (text: string, column: TableColumn) => string
  onRow?: (row: Cells) => void
  current?: (row: Cells) => boolean
}

export function DataTable({ block, tools, shorten, onRow, current }: Props) {
  const [sort, setSort] = useState<{ key: string; down: boolean } | null>(null)
  const [filter, setFilter] = useState('')
  const [copied, setCopied] = useState('')
  const [top, setTop] = useState(0)
  const box = useRef<HTMLDivElement>(null)
  const rows = useMemo(
    () => sortRows(filterRows(block, filter), sort, block.columns),
    [block, filter, sort?.key, sort?.down],
  )
  const virtual = rows.length > WINDOW * 2
  const from = virtual ? Math.max(0, Math.floor(top / ROW) - 10) : 0
  const shown = virtual ? rows.slice(from, from + WINDOW) : rows

  const copy = async () => {
    const text = markdown(block.columns, rows)
    const done = await toClipboard(text)
    setCopied(done ? `${rows.length} rows copied as Markdown` : 'the browser does not allow copying')
  }
  return (
    <div class="table-box">
      {tools && (
        <div class="table-tools">
          <input
            type="search"
            placeholder={`Filter ${block.rows.length.toLocaleString('en')} row${block.rows.length === 1 ? '' : 's'}`}
            aria-label={`Filter ${block.title}`}
            value={filter}
            onInput={(event) => {
              setFilter(event.currentTarget.value)
              setTop(0)
              box.current?.scrollTo(0, 0)
            }}
          />
          <span class="dim" role="status">
            {filter ? `${rows.length.toLocaleString('en')} match` : ''}
          </span>
          <button type="button" onClick={copy}>
            Copy as Markdown
          </button>
          <span class="dim" role="status">
            {copied}
          </span>
        </div>
      )}
      <section
        class={`table-scroll${virtual ? ' tall' : ''}`}
        ref={box}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
        tabIndex={0}
        aria-label={clean(block.title)}
        onScroll={virtual ? (event) => setTop(event.currentTarget.scrollTop) : undefined}
      >
        <table>
          <thead>
            <tr>
              {block.columns.map((column) => (
                <Heading key={column.key} column={column} tools={!!tools} sort={sort} onSort={setSort} />
              ))}
            </tr>
          </thead>
          <tbody>
            {from > 0 && <tr class="filler" style={{ height: `${from * ROW}px` }} />}
            {shown.map((row, i) => (
              <tr
                key={from + i}
                class={onRow ? (current?.(row) ? 'clickable current' : 'clickable') : undefined}
                // One stop of the Tab key for the whole table; arrow keys walk on from there.
                tabIndex={onRow ? (i === 0 || current?.(row) ? 0 : -1) : undefined}
                aria-current={current?.(row) || undefined}
                onClick={onRow ? () => onRow(row) : undefined}
                onKeyDown={onRow ? (event) => rowKey(event, () => onRow(row)) : undefined}
              >
                {block.columns.map((column) => (
                  <Cell key={column.key} column={column} value={row[column.key]} shorten={shorten} />
                ))}
              </tr>
            ))}
            {virtual && (
              <tr class="filler" style={{ height: `${Math.max(0, rows.length - from - shown.length) * ROW}px` }} />
            )}
          </tbody>
        </table>
      </section>
      {block.omitted > 0 && <p class="dim small">{block.omitted.toLocaleString('en')} more rows not shown</p>}
    </div>
  )
}

/** Enter selects a row, arrow keys go to the next or previous one. */
export function rowKey(event: KeyboardEvent, pick: () => void): void {
  const row = event.currentTarget as HTMLElement
  if (event.key === 'Enter') pick()
  else if (event.key === 'ArrowDown') focusRow(row.nextElementSibling)
  else if (event.key === 'ArrowUp') focusRow(row.previousElementSibling)
  else return
  event.preventDefault()
}

function focusRow(row: Element | null): void {
  if (row instanceof HTMLElement && row.tabIndex >= -1 && !row.classList.contains('filler')) row.focus()
}

function Heading(props: {
  column: TableColumn
  tools: boolean
  sort: { key: string; down: boolean } | null
  onSort: (sort: { key: string; down: boolean }) => void
}) {
  const { column, tools, sort, onSort } = props
  const active = sort?.key === column.key
  const kind = column.type === 'text' ? 'text' : 'number'
  if (!column.label.trim()) return <td class={kind} />
  if (!tools) return <th class={kind}>{clean(column.label)}</th>
  return (
    <th class={kind} aria-sort={active ? (sort?.down ? 'descending' : 'ascending') : 'none'}>
      <button
        type="button"
        class="sort"
        onClick={() => onSort({ key: column.key, down: active ? !sort?.down : column.type !== 'text' })}
      >
        {clean(column.label)}
        <span aria-hidden="true">{active ? (sort?.down ? ' ▾' : ' ▴') : ''}</span>
      </button>
    </th>
  )
}

function Cell({ column, value, shorten }: { column: TableColumn; value: Value; shorten: Props['shorten'] }) {
  if (column.type !== 'text')
    return <td class={value === 0 ? 'number zero' : 'number'}>{formatQuantity(column.type, value)}</td>
  const full = String(value ?? '–')
  const indent = full.length - full.trimStart().length
  const text = clean(shorten ? shorten(full.trimStart(), column) : full.trimStart(), 200)
  return (
    <td class="text" style={indent ? { paddingLeft: `${8 + Math.min(indent, 24) * 7}px` } : undefined}>
      <bdi title={clean(full, 1200)}>{text}</bdi>
    </td>
  )
}

export function filterRows(block: TableBlock, filter: string): Cells[] {
  const needle = filter.trim().toLowerCase()
  if (!needle) return block.rows
  const keys = block.columns.filter((column) => column.type === 'text').map((column) => column.key)
  return block.rows.filter((row) => keys.some((key) => String(row[key]).toLowerCase().includes(needle)))
}

/** Rows in the order of one column; missing values last, equal rows in their order. */
export function sortRows(rows: Cells[], sort: { key: string; down: boolean } | null, columns: TableColumn[]): Cells[] {
  if (!sort) return rows
  const text = columns.find((column) => column.key === sort.key)?.type === 'text'
  const sign = sort.down ? -1 : 1
  return [...rows].sort((a, b) => {
    const x = a[sort.key]
    const y = b[sort.key]
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1
    return sign * (text ? String(x).localeCompare(String(y)) : Number(x) - Number(y))
  })
}

export function markdown(columns: TableColumn[], rows: Cells[]): string {
  const escaped = (text: string) => clean(text, 400).replace(/[\\`*_{}[\]<>|#]/g, '\\$&')
  const line = (cells: string[]) => `| ${cells.join(' | ')} |`
  return [
    line(columns.map((column) => escaped(column.label))),
    line(columns.map((column) => (column.type === 'text' ? '---' : '---:'))),
    ...rows.map((row) => line(columns.map((c) => escaped(formatQuantity(c.type, row[c.key]))))),
  ].join('\n')
}
