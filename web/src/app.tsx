// The frame around the views of one trace: navigation, failures.

import { failure } from './data/load'
import type { PageData } from './data/report'
import { clean } from './format'
import { Top } from './parts/top'
import { hashOf, route, type View } from './route'
import { Calls } from './views/calls'
import { Compare } from './views/compare'
import { helps } from './views/findings'
import { Overview } from './views/overview'
import { Predicted } from './views/predicted'
import { Tables } from './views/tables'
import { TimelineView } from './views/timeline'

const WORDS: Record<View, string> = {
  overview: 'Overview',
  timeline: 'Timeline',
  calls: 'Calls',
  tables: 'Tables',
  predicted: 'Predicted',
  compare: 'Compared',
}

/** Views that show a finding, if one is chosen. */
const KEEPS_FINDING: View[] = ['overview', 'timeline', 'predicted']

export function App({ data }: { data: PageData }) {
  const at = route.value
  return (
    <>
      <Top file={data.report.source.path}>
        <nav aria-label="Views">
          {(Object.keys(WORDS) as View[])
            .filter((view) => view !== 'compare' || data.compared)
            .filter((view) => view !== 'predicted' || data.report.findings.some(helps))
            .map((view) => (
              <a
                key={view}
                href={hashOf({ view, finding: KEEPS_FINDING.includes(view) ? at.finding : '' })}
                aria-current={at.view === view ? 'page' : undefined}
              >
                {WORDS[view]}
              </a>
            ))}
        </nav>
      </Top>
      {failure.value && (
        <p class="failure" role="alert">
          {clean(failure.value, 500)}
        </p>
      )}
      {at.view === 'overview' && (
        <Overview report={data.report} facts={data.overview} finding={at.finding} summary={data.summary} />
      )}
      {at.view === 'timeline' && <TimelineView report={data.report} server={data.server} />}
      {at.view === 'calls' && <Calls server={data.server} />}
      {at.view === 'predicted' && (
        <Predicted findings={data.report.findings} finding={at.finding} server={data.server} />
      )}
      {at.view === 'compare' && data.compared && <Compare />}
      {at.view === 'tables' && <Tables table={at.table} server={data.server} />}
    </>
  )
}
