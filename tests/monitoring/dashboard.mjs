// Checks the dashboard against the types that Grafana generates from its schemas: the dashboard and its panels, variables and
// annotations, and for each panel the options and field settings of its plugin.

import { readFileSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { join } from "node:path";

const here = fileURLToPath(new URL(".", import.meta.url));
const [dashboardFile, work] = process.argv.slice(2);
const dashboard = JSON.parse(readFileSync(dashboardFile, "utf8"));

// The modules of the plugins' settings; null for what has no field settings of its own.
const plugins = {
  timeseries: { module: "timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen", custom: "FieldConfig" },
  stat: { module: "stat/panelcfg/x/StatPanelCfg_types.gen", custom: null },
};

const types = join(here, "node_modules/@grafana/schema/dist/types/raw");
const lines = [
  `import type { Dashboard, Panel, RowPanel, VariableModel, AnnotationQuery } from "${types}/dashboard/x/types.gen";`,
  ...Object.entries(plugins).map(([name, { module }]) => {
    const folder = module.slice(0, module.lastIndexOf("/"));
    return `import type * as ${name} from "${types}/composable/${folder}/types.gen";`;
  }),
  // In JSON, a value of an enumeration is a string.
  "type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T",
  "  : T extends Array<infer U> ? Plain<U>[] : unknown extends T ? T : { [K in keyof T]: Plain<T[K]> };",
];
const declare = (name, type, value) => lines.push(`export const ${name}: Plain<${type}> = ${JSON.stringify(value)};`);

const { panels, templating, annotations, ...rest } = dashboard;
declare("dashboard", "Dashboard", rest);
templating.list.forEach((variable, at) => declare(`variable_${at}`, "VariableModel", variable));
annotations.list.forEach((query, at) => declare(`annotation_${at}`, "AnnotationQuery & { expr: string; titleFormat: string }", query));
const unknown = [];
for (const panel of panels) {
  if (panel.type === "row") {
    declare(`row_${panel.id}`, "RowPanel", panel);
    continue;
  }
  const plugin = plugins[panel.type];
  if (!plugin) {
    unknown.push(`panel ${panel.id}: the plugin ${panel.type} is not known`);
    continue;
  }
  const { custom, ...defaults } = panel.fieldConfig.defaults;
  declare(`panel_${panel.id}`, "Panel", { ...panel, options: {}, fieldConfig: { ...panel.fieldConfig, defaults } });
  declare(`options_${panel.id}`, `${panel.type}.Options`, panel.options);
  if (plugin.custom) declare(`custom_${panel.id}`, `${panel.type}.${plugin.custom}`, custom);
  else if (custom) unknown.push(`panel ${panel.id}: ${panel.type} has no settings of its own for fields`);
}
const ids = panels.map((panel) => panel.id);
if (new Set(ids).size !== ids.length) unknown.push("two panels have the same ID");

const source = join(work, "dashboard.ts");
writeFileSync(source, lines.join("\n"));
const compiler = join(here, "node_modules/typescript/bin/tsc");
const settings = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"];
const checked = spawnSync(process.execPath, [compiler, ...settings, source], { encoding: "utf8", cwd: here });
const mistakes = [...unknown, ...(checked.status === 0 ? [] : [checked.stdout + checked.stderr])];
if (mistakes.length > 0) {
  console.error(mistakes.join("\n"));
  process.exit(1);
}
console.log(`monitoring: ${panels.length} panels are as Grafana's schema has them`);
