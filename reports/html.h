/** @file html.h  Pieces of the HTML report. Internal to reports/. */
#ifndef TY_REPORTS_HTML_H
#define TY_REPORTS_HTML_H

#include "ty_reports.h"

extern const char ty_page_css[];
extern const char ty_page_js[];
extern const char ty_page_glossary_text[]; /* docs/reference/glossary.md */
extern const char ty_charts_js[];          /* "" in a build without charts */
extern const char ty_charts_notices[];

#endif
