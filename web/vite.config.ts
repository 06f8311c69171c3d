import { defineConfig } from 'vite'

// One script and one style sheet, both inlined into the page by lanewise.show.page.html.
export default defineConfig({
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    minify: process.env.LANEWISE_PAGE_DEBUG ? false : 'oxc',
    outDir: process.env.LANEWISE_PAGE_OUT ?? '../src/lanewise/show/page/built',
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    lib: {
      entry: 'src/main.tsx',
      name: 'lanewisePage',
      formats: ['iife'],
      fileName: () => 'page.js',
      cssFileName: 'page',
    },
  },
  define: { 'process.env.NODE_ENV': '"production"' },
})
