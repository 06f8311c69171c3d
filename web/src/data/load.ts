// Where the page's data comes from: blocks in the document, or the local server that made the page.

import { signal } from '@preact/signals'
import type { DiffExtra } from './diff'
import type { JobPage } from './job'
import type { PredictedExtra } from './predicted'
import type { PageData, TablesExtra } from './report'
import { Timeline, type TimelineExtra } from './timeline'
import type { TreeExtra } from './tree'
import { type Block, inflate, unpack, unpackBase64 } from './unpack'

export const timeline = signal<Timeline | null>(null)
export const tables = signal<TablesExtra | null>(null)
export const tree = signal<Block<TreeExtra> | null>(null)
/** A step as it is and as predicted with what was found mended. */
export const predicted = signal<Block<PredictedExtra> | null>(null)
/** The base of a comparison, and the comparison, where the page holds one. */
export const before = signal<Timeline | null>(null)
export const diff = signal<Block<DiffExtra> | null>(null)
export const failure = signal('')

export function pageData(): PageData | JobPage {
  return JSON.parse(document.getElementById('data')?.textContent ?? '') as PageData | JobPage
}

/** Unpacks the blocks, the timeline first. The overview is on screen by then. */
export async function loadBlocks(server: string, compared: boolean): Promise<void> {
  await orFail(async () => {
    if (compared) diff.value = await block<DiffExtra>('diff', server)
    const lines = await block<TimelineExtra>('timeline', server)
    if (lines) timeline.value = Timeline.from(lines)
    if (server) return
    await loadTables('')
    await loadTree('')
    await loadPredicted('')
    const base = compared ? await block<TimelineExtra>('before', server) : null
    if (base) before.value = Timeline.from(base)
  })
}

const asked = new Set<string>()

/** Asks a server for what only one view shows, once that view is opened: trees of 10^7 events take it a while. */
export function want(name: 'tables' | 'tree' | 'predicted', server: string): void {
  if (!server || asked.has(name)) return
  asked.add(name)
  void orFail(() => LOADS[name](server))
}

async function loadTables(server: string): Promise<void> {
  tables.value = (await block<TablesExtra>('tables', server))?.extra ?? null
}

async function loadTree(server: string): Promise<void> {
  tree.value = await block<TreeExtra>('tree', server)
}

async function loadPredicted(server: string): Promise<void> {
  predicted.value = await block<PredictedExtra>('predicted', server)
}

const LOADS = { tables: loadTables, tree: loadTree, predicted: loadPredicted }

async function orFail(load: () => Promise<void>): Promise<void> {
  try {
    await load()
  } catch (error) {
    failure.value = `The page's data could not be read: ${error instanceof Error ? error.message : String(error)}`
  }
}

async function block<E>(name: string, server: string): Promise<Block<E> | null> {
  const element = document.getElementById(`block-${name}`)
  if (element) {
    const found = await unpackBase64<E>(element.textContent ?? '')
    // The text is not needed any more; it may be tens of megabytes.
    element.remove()
    return found
  }
  if (!server) return null
  return fetchBlock<E>(`${server}/${name}`)
}

export async function fetchBlock<E>(address: string): Promise<Block<E>> {
  const response = await fetch(address)
  if (!response.ok) throw new Error(`${address.split('/').pop()}: ${response.status}`)
  return unpack<E>(await inflate(new Uint8Array(await response.arrayBuffer())))
}
