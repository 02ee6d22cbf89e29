// What the report uses of ECharts, and nothing else; esbuild makes one script of it.
import { init, use } from "echarts/core";
import { BarChart, CustomChart, GraphChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, CustomChart, GraphChart, HeatmapChart, LineChart, ScatterChart, AriaComponent, DataZoomComponent,
  GridComponent, LegendComponent, MarkLineComponent, TooltipComponent, VisualMapComponent, CanvasRenderer]);

window.trainyardCharts = { init };
