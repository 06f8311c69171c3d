// The timeline view: canvas, search, hover card and panel. Pixels are drawn in timeline/painter.ts.

import { type Signal, signal, useSignal } from '@preact/signals'
import { useEffect, useMemo, useRef } from 'preact/hooks'
import { failure, timeline as loaded } from '../data/load'
import type { Report } from '../data/report'
import type { Timeline } from '../data/timeline'
import { clean, formatTime } from '../format'
import { CLASS_WORDS } from '../parts/classes'
import { Divider } from '../parts/divider'
import { dark } from '../parts/top'
import { note, route } from '../route'
import { Controller, type Hover } from '../timeline/controller'
import { kindWords } from '../timeline/details'
import { HoverOutline } from '../timeline/hover-outline'
import { FindingPanel, Guide, Left, MeasurePanel, SlicePanel } from '../timeline/panel'
import { InPage, Remote } from '../timeline/source'

export function TimelineView({ report, server }: { report: Report; server: string }) {
  const timeline = loaded.value
  if (!timeline)
    return (
      <main id="main" class="loading">
        {failure.value ? 'The timeline is not available.' : 'Unpacking the timeline …'}
      </main>
    )
  if (timeline.extra.lanes.length === 0)
    return (
      <main id="main" class="loading">
        The trace holds no slices: there is nothing to draw.
      </main>
    )
  return <Loaded timeline={timeline} report={report} server={server} />
}

function Loaded({ timeline, report, server }: { timeline: Timeline; report: Report; server: string }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const search = useRef<HTMLInputElement>(null)
  const text = useSignal('')
  const panel = panelHeight
  const controller = useMemo(() => {
    const source = server
      ? new Remote(
          timeline,
          server,
          () => made.draw(),
          (error) => {
            failure.value = `The server does not answer: ${String(error)}. Is lanewise view still running?`
          },
        )
      : new InPage(timeline, timeline.extra.places ?? {})
    const made: Controller = new Controller(source, (view) =>
      note({
        view: 'timeline',
        finding: route.peek().finding,
        range: [view.from, view.to],
        slice: made.selected.peek()?.slice.id ?? -1,
      }),
    )
    return made
  }, [timeline, server])

  useEffect(() => {
    if (!canvas.current) return
    return controller.attach(canvas.current, () => search.current?.focus())
  }, [controller])
  useEffect(() => controller.setDark(dark.value), [controller, dark.value])

  const at = route.value
  const finding = report.findings.find((f) => f.code === at.finding)
  useEffect(() => void controller.mark(finding?.code ?? ''), [controller, finding?.code])
  useEffect(() => {
    if (finding && finding.places.length > 0) void controller.showPlace(finding.places[0], 0)
    else if (at.range) controller.show(at.range[0], at.range[1])
  }, [controller, at.finding])
  useEffect(() => {
    if (!finding && at.range) controller.show(at.range[0], at.range[1])
  }, [controller, at])

  useEffect(() => {
    if (at.slice >= 0) void controller.selectId(at.slice, !at.range)
  }, [controller, at.slice])

  useEffect(() => {
    if (!at.search) return
    text.value = at.search
    void controller.search(at.search).then(() => controller.nextMatch(1))
  }, [controller, at.search])

  const { hover, selected, measured, place, found, marks, pinned } = controller
  return (
    <main id="main" class="timeline">
      <h1 class="off-screen">Timeline</h1>
      <div class="timeline-tools">
        <input
          ref={search}
          type="search"
          placeholder="Search names ( / )"
          aria-label="Search slices by name"
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value
            void controller.search(text.value)
          }}
          onKeyDown={(event) => {
            if (event.key === 'Enter') controller.nextMatch(event.shiftKey ? -1 : 1)
            if (event.key === 'Escape') {
              text.value = ''
              void controller.search('')
              canvas.current?.focus()
            }
          }}
        />
        <span role="status" class="small dim" data-testid="matches">
          {found.value &&
            (found.value.total === 0
              ? 'no match'
              : `${controller.matchIndex.value >= 0 ? `${controller.matchIndex.value + 1} of ` : ''}${found.value.total.toLocaleString('en')} match${found.value.total === 1 ? '' : 'es'}`)}
        </span>
        <span class="spring" />
        <button type="button" onClick={() => controller.zoomBy(0.5)} aria-label="Zoom in">
          +
        </button>
        <button type="button" onClick={() => controller.zoomBy(2)} aria-label="Zoom out">
          −
        </button>
        <button type="button" onClick={() => controller.showAll()}>
          Whole trace
        </button>
        <button type="button" onClick={() => controller.foldAll()}>
          Fold / unfold
        </button>
        {timeline.extra.lanes.some((lane) => lane.side === 'device') && (
          <button
            type="button"
            onClick={() => controller.pinDevices()}
            aria-pressed={pinned.value.size > 0}
            title="Keep the GPU's lanes in sight while the others scroll ( P ); the pin of a lane does so for one"
          >
            Pin GPU
          </button>
        )}
      </div>
      <div class="canvas-box">
        {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: a screen reader must hand the keys on */}
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label="Timeline of the trace. W and S zoom, A and D move, arrow keys walk from slice to slice, slash searches, F shows the selection whole. What is selected is described below."
        />
        <HoverOutline hover={hover} />
        <HoverCard hover={hover} timeline={timeline} />
      </div>
      <Divider label="Height of the panel" size={panel.value} onSize={(size) => (panel.value = size)} />
      <section class="panel" style={{ height: `${panel.value}px` }} aria-live="polite" aria-label="Selection">
        {measured.value ? (
          <MeasurePanel measured={measured.value} />
        ) : selected.value ? (
          <SlicePanel
            timeline={timeline}
            details={selected.value}
            onGo={(slice) => void controller.select(slice, true)}
          />
        ) : finding ? (
          <FindingPanel
            finding={finding}
            place={place.value}
            marks={marks.value}
            onPlace={(index) => void controller.showPlace(finding.places[index], index)}
          />
        ) : (
          <Guide timeline={timeline} findings={report.findings} />
        )}
        {(measured.value || selected.value) && (
          <button type="button" class="close" onClick={() => controller.clear()} aria-label="Clear the selection">
            ×
          </button>
        )}
      </section>
      {timeline.extra.omitted && Object.keys(timeline.extra.omitted).length > 0 && (
        <div class="left-out">
          <Left timeline={timeline} />
        </div>
      )}
    </main>
  )
}

/** Of the panel below the lanes, px: the same while the page is open. */
const panelHeight = signal(232)

/** Widest hover card, px: as in the style sheet. */
const CARD = 370

/** Reads the signal itself: a movement of the pointer makes nothing anew but the card. */
function HoverCard({ hover: pointed, timeline }: { hover: Signal<Hover | null>; timeline: Timeline }) {
  const hover = pointed.value
  if (!hover) return null
  // To the left of the pointer where there is no room to its right: what is pointed at stays visible.
  const left = hover.x + 14 + CARD <= hover.width ? hover.x + 14 : Math.max(4, hover.x - 14 - CARD)
  const below = hover.y < hover.height * 0.6
  const edge = below ? { top: `${hover.y + 16}px` } : { bottom: `${hover.height - hover.y + 12}px` }
  return (
    <div class="hover-card" role="tooltip" style={{ left: `${left}px`, ...edge }}>
      {hover.slice && (
        <>
          <p class="slice-name">
            <bdi>{clean(hover.slice.short, 160)}</bdi>
          </p>
          <p>
            {formatTime(hover.slice.duration)}{' '}
            <span class="dim">· {kindWords(timeline.extra.kinds[hover.slice.kind]).what}</span>
          </p>
          {hover.others > 0 && (
            <p class="dim">and {hover.others.toLocaleString('en')} more within this pixel; zoom in</p>
          )}
          {hover.args.map((arg) => (
            <p key={arg.name} class="dim">
              {clean(arg.name)}: <bdi>{clean(arg.text, 120)}</bdi>
            </p>
          ))}
        </>
      )}
      {hover.cause && (
        <>
          <p class="slice-name">
            GPU {clean(timeline.extra.device)} {CLASS_WORDS[hover.cause.name]?.label ?? clean(hover.cause.name)}
          </p>
          <p>{formatTime(hover.cause.duration)}</p>
          <p class="dim">{CLASS_WORDS[hover.cause.name]?.hint}</p>
          {hover.cause.next && hover.cause.name !== 'compute' && hover.cause.name !== 'transfer' && (
            <p class="dim">
              next: <bdi>{clean(hover.cause.next.short, 90)}</bdi>
              {hover.cause.nextLaunch &&
                `, whose launch began ${formatTime(Math.max(0, hover.cause.next.start - hover.cause.nextLaunch.start))} before it`}
            </p>
          )}
        </>
      )}
      {hover.text && <p>{clean(hover.text, 300)}</p>}
    </div>
  )
}
