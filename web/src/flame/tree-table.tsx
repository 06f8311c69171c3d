// A tree as a table: rows open and close, values of all metrics side by side.

import { useMemo, useState } from 'preact/hooks'
import type { TreeView } from '../data/tree'
import { clean, formatQuantity } from '../format'
import { rowKey } from '../parts/table'
import { METRICS } from '../views/calls'

interface Props {
  view: TreeView
  kinds: string[]
  phases: string[]
  metrics: string[]
  by: string
  onPick: (node: number) => void
}

const MOST_ROWS = 600

export function TreeTable({ view, kinds, phases, metrics, by, onPick }: Props) {
  const total = view.total[by]
  const sorted = (nodes: readonly number[]) => [...nodes].sort((a, b) => total[b] - total[a])
  const [open, setOpen] = useState<ReadonlySet<number>>(() => hotPath(view, by))
  const toggle = (node: number) => {
    const next = new Set(open)
    if (!next.delete(node)) next.add(node)
    setOpen(next)
  }
  const rows = useMemo(() => {
    const found: [number, number][] = []
    const stack: [number, number][] = sorted(view.roots)
      .reverse()
      .map((node) => [node, 0])
    for (let next = stack.pop(); next; next = stack.pop()) {
      const [node, depth] = next
      found.push([node, depth])
      if (open.has(node)) for (const child of sorted(view.children[node]).reverse()) stack.push([child, depth + 1])
    }
    return found
  }, [view, by, open])
  const onKey = (event: KeyboardEvent, node: number) => {
    const children = view.children[node].length > 0
    if (event.key === 'ArrowRight' && children && !open.has(node)) toggle(node)
    else if (event.key === 'ArrowLeft' && open.has(node)) toggle(node)
    else {
      rowKey(event, () => onPick(node))
      return
    }
    event.preventDefault()
  }
  return (
    <div class="table-scroll tall">
      {/* biome-ignore lint/a11y/noNoninteractiveElementToInteractiveRole: a tree grid is an interactive table */}
      <table role="treegrid" aria-label="Tree as a table">
        <thead>
          <tr>
            <th>name</th>
            <th>kind</th>
            <th>phase</th>
            {metrics.map((metric) => (
              <th key={metric} class="number">
                {METRICS[metric][0].toLowerCase()}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map(([node, depth], i) => {
            const children = view.children[node].length > 0
            return (
              <tr
                key={node}
                class="clickable"
                aria-level={depth + 1}
                aria-expanded={children ? open.has(node) : undefined}
                tabIndex={i === 0 ? 0 : -1}
                onClick={() => onPick(node)}
                onKeyDown={(event) => onKey(event, node)}
              >
                <td class="text" style={{ paddingLeft: `${8 + Math.min(depth, 40) * 12}px` }}>
                  {children ? (
                    <button
                      type="button"
                      class="twist"
                      tabIndex={-1}
                      aria-label={open.has(node) ? 'Close' : 'Open'}
                      onClick={(event) => {
                        event.stopPropagation()
                        toggle(node)
                      }}
                    >
                      {open.has(node) ? '▾' : '▸'}
                    </button>
                  ) : (
                    <span class="twist" />
                  )}
                  <bdi title={clean(view.strings[view.name[node]], 800)}>
                    {clean(view.strings[view.name[node]], 120)}
                  </bdi>
                </td>
                <td>{kinds[view.kind[node]]}</td>
                <td>{phases[view.phase[node]]}</td>
                {metrics.map((metric) => (
                  <td key={metric} class={view.total[metric][node] === 0 ? 'number zero' : 'number'}>
                    {formatQuantity(METRICS[metric][1], view.total[metric][node])}
                  </td>
                ))}
              </tr>
            )
          })}
        </tbody>
      </table>
      {rows.length > MOST_ROWS && (
        <p class="dim small">
          {(rows.length - MOST_ROWS).toLocaleString('en')} more open rows not shown; close some above
        </p>
      )}
    </div>
  )
}

/** The nodes on the way down to the most expensive leaf: open at first. */
function hotPath(view: TreeView, by: string): Set<number> {
  const total = view.total[by]
  const open = new Set<number>()
  let nodes: readonly number[] = view.roots
  for (let depth = 0; depth < 12 && nodes.length; depth++) {
    const best = nodes.reduce((a, b) => (total[b] > total[a] ? b : a))
    open.add(best)
    nodes = view.children[best]
  }
  return open
}
