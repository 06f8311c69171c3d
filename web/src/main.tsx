import { render } from 'preact'
import { App } from './app'
import { loadBlocks, pageData } from './data/load'
import { listen } from './route'
import './style/page.css'
import { Ranks } from './views/ranks'

function start(): void {
  const data = pageData()
  const root = document.getElementById('app')
  if (!root) return
  root.replaceChildren()
  if ('job' in data) {
    render(<Ranks job={data.job} />, root)
    return
  }
  listen()
  render(<App data={data} />, root)
  // What follows in the document may be large: it is unpacked once it has arrived, and after the first paint.
  const load = () => requestAnimationFrame(() => setTimeout(() => void loadBlocks(data.server, data.compared)))
  if (document.readyState === 'loading') addEventListener('DOMContentLoaded', load)
  else load()
}

start()
