// Where the time goes in the program: trees as icicles and as tables, and one name from both sides.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { failure, tree as loaded, want } from '../data/load'
import { labelOf, sandwich, type TreeExtra, type TreeView, treeView } from '../data/tree'
import type { Block } from '../data/unpack'
import { Flame } from '../flame/flame'
import { type Box, boxesOf, boxesOfMerged } from '../flame/layout'
import { TreeTable } from '../flame/tree-table'
import { clean, formatQuantity } from '../format'
import { omittedText, SourcePane } from '../parts/source'
import { hashOf } from '../route'

const VIEWS: Record<string, [string, string]> = {
  program: [
    'Program',
    'From the program down to the kernels. Backward work stands under its forward line; frames inside libraries are folded.',
  ],
  ran: ['As it ran', 'Every frame, and backward work on the thread that ran it.'],
  kernels: ['Kernels, and who calls them', 'From what costs time on the device up to its callers.'],
  modules: ['Modules', 'The network, with what each part cost.'],
}

export const METRICS: Record<string, [string, string]> = {
  device: ['Device time', 'time'],
  host: ['Host time', 'time'],
  count: ['Kernels and copies', 'count'],
  launches: ['Launches', 'count'],
  gap: ['Stream idle before', 'time'],
  bytes: ['Copied', 'bytes'],
  allocated: ['Allocated', 'bytes'],
  calls: ['Calls', 'count'],
}

export function Calls({ server }: { server: string }) {
  const block = loaded.value
  useEffect(() => want('tree', server), [server])
  if (!block)
    return (
      <main id="main" class="loading">
        {failure.value ? 'The trees are not available.' : server ? 'Building the trees …' : 'Unpacking the trees …'}
      </main>
    )
  const keys = Object.keys(VIEWS).filter((key) => (block.extra.views[key]?.nodes ?? 0) > 0)
  if (keys.length === 0)
    return (
      <main id="main" class="loading">
        The trace holds no calls: there is no tree to show.
      </main>
    )
  return <Loaded block={block} keys={keys} />
}

function Loaded({ block, keys }: { block: Block<TreeExtra>; keys: string[] }) {
  const [key, setKey] = useState(keys[0])
  const [metric, setMetric] = useState('')
  const [focus, setFocus] = useState(-1)
  const [picked, setPicked] = useState<number>(-1)
  const [name, setName] = useState(-1)
  const [text, setText] = useState('')
  const view = useMemo(() => treeView(block, key), [block, key])
  const metrics = useMemo(
    () => block.extra.metrics.filter((m) => METRICS[m] && view.self[m].some((v) => v > 0)),
    [view],
  )
  const chosen = metrics.includes(metric) ? metric : (metrics[0] ?? 'device')
  const boxes = useMemo(() => boxesOf(view, chosen, focus), [view, chosen, focus])
  const total = view.roots.reduce((sum, root) => sum + view.total[chosen][root], 0)
  const type = METRICS[chosen][1]
  const info = block.extra.views[key]
  const change = (next: string) => {
    setKey(next)
    setFocus(-1)
    setPicked(-1)
    setName(-1)
  }
  const pick = (box: Box) => setPicked(box.node)
  const open = (box: Box) => {
    setPicked(box.node)
    setFocus(box.node === focus ? -1 : box.node)
  }
  return (
    <main id="main" class="page">
      <h1>Where the time goes in the program</h1>
      <div class="tools">
        <div class="tabs" role="tablist" aria-label="Trees">
          {keys.map((of) => (
            <button key={of} type="button" role="tab" aria-selected={of === key} onClick={() => change(of)}>
              {VIEWS[of][0]}
            </button>
          ))}
        </div>
        <label>
          by{' '}
          <select value={chosen} onChange={(event) => setMetric(event.currentTarget.value)}>
            {metrics.map((of) => (
              <option key={of} value={of}>
                {METRICS[of][0]}
              </option>
            ))}
          </select>
        </label>
        <input
          type="search"
          placeholder="Highlight names"
          aria-label="Highlight names in the tree"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        {focus >= 0 && (
          <button type="button" onClick={() => setFocus(-1)}>
            Whole tree
          </button>
        )}
      </div>
      <p class="dim small">
        {VIEWS[key][1]} {METRICS[chosen][0]} in all: {formatQuantity(type, total)}.
        {info.truncated > 0 &&
          ` ${info.truncated.toLocaleString('en')} of ${info.total.toLocaleString('en')} contexts, the cheapest ones, are merged as <truncated>.`}
        {block.extra.source &&
          ` Select a call to see the lines it comes from (${Object.keys(block.extra.source.excerpts).length.toLocaleString('en')} places are in the page).${omittedText(block.extra.source.omitted)}`}
      </p>
      <Flame
        boxes={boxes}
        kinds={block.extra.kinds}
        type={type}
        total={total}
        label={`${VIEWS[key][0]} by ${METRICS[chosen][0]}`}
        match={text}
        selected={boxes.findIndex((box) => box.node === picked)}
        onPick={pick}
        onOpen={open}
      />
      {picked >= 0 && (
        <Picked
          block={block}
          view={view}
          node={picked}
          metrics={metrics}
          onZoom={() => setFocus(picked)}
          onSandwich={() => setName(view.name[picked])}
        />
      )}
      {name >= 0 && (
        <Sandwich block={block} view={view} name={name} metric={chosen} type={type} onClose={() => setName(-1)} />
      )}
      <h2>As a table</h2>
      <TreeTable
        key={key}
        view={view}
        kinds={block.extra.kinds}
        phases={block.extra.phases}
        metrics={metrics}
        by={chosen}
        onPick={setPicked}
      />
    </main>
  )
}

function Picked(props: {
  block: Block<TreeExtra>
  view: TreeView
  node: number
  metrics: string[]
  onZoom: () => void
  onSandwich: () => void
}) {
  const { block, view, node, metrics, onZoom, onSandwich } = props
  const label = view.strings[view.name[node]]
  return (
    <section class="picked" aria-live="polite" aria-label="Selected node">
      <p class="slice-name">
        <bdi>{clean(label, 400)}</bdi>
      </p>
      <p class="dim small">
        {block.extra.kinds[view.kind[node]]}, {block.extra.phases[view.phase[node]]}
        {view.strings[view.detail[node]] && `, ${clean(view.strings[view.detail[node]], 120)}`}
      </p>
      {block.extra.source && <Source source={block.extra.source} block={block} view={view} node={node} />}
      <dl class="facts">
        {metrics.map((metric) => (
          <div key={metric}>
            <dt>{METRICS[metric][0]}</dt>
            <dd>
              {formatQuantity(METRICS[metric][1], view.total[metric][node])}
              {view.self[metric][node] !== view.total[metric][node] && (
                <span class="dim"> · itself {formatQuantity(METRICS[metric][1], view.self[metric][node])}</span>
              )}
            </dd>
          </div>
        ))}
      </dl>
      <p class="tools">
        <button type="button" onClick={onZoom}>
          Show whole
        </button>
        <button type="button" onClick={onSandwich}>
          Callers and callees
        </button>
        <a class="button" href={hashOf({ view: 'timeline', search: label.slice(0, 150) })}>
          Find in the timeline
        </a>
      </p>
    </section>
  )
}

/** Lines of the selected frame, or of the innermost frame around the selected node that has some. */
function Source(props: {
  source: NonNullable<TreeExtra['source']>
  block: Block<TreeExtra>
  view: TreeView
  node: number
}) {
  const { source, block, view, node } = props
  let at = node
  if (block.extra.kinds[view.kind[node]] !== 'frame')
    while (at >= 0 && !source.excerpts[view.name[at]]) at = view.parent[at]
  if (at < 0) return null
  return (
    <>
      {at !== node && (
        <p class="dim small">
          Called from <bdi class="mono">{clean(labelOf(view, at), 200)}</bdi>
        </p>
      )}
      <SourcePane source={source} name={view.name[at]} />
    </>
  )
}

function Sandwich(props: {
  block: Block<TreeExtra>
  view: TreeView
  name: number
  metric: string
  type: string
  onClose: () => void
}) {
  const { block, view, name, metric, type, onClose } = props
  const { callers, callees } = useMemo(() => sandwich(view, name, metric), [view, name, metric])
  const above = useMemo(() => boxesOfMerged(callers, view.strings), [callers])
  const below = useMemo(() => boxesOfMerged(callees, view.strings), [callees])
  const shared = {
    kinds: block.extra.kinds,
    type,
    total: callers.value,
    selected: -1,
    onPick: () => {},
    onOpen: () => {},
  }
  return (
    <section class="sandwich" aria-label="Callers and callees">
      <h2>
        <bdi class="mono">{clean(view.strings[name], 200)}</bdi> from both sides: {formatQuantity(type, callers.value)}{' '}
        <button type="button" onClick={onClose}>
          Close
        </button>
      </h2>
      <p class="dim small">Who calls it, above, and what it calls, below; every place in the program added up.</p>
      <Flame boxes={above} upward label="Callers" {...shared} />
      <Flame boxes={below} label="Callees" {...shared} />
    </section>
  )
}
