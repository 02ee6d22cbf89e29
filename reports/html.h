/** @file html.h  Pieces of the HTML report. Internal to reports/. */
#ifndef TY_REPORTS_HTML_H
#define TY_REPORTS_HTML_H

#include "ty_reports.h"

extern const char ty_page_css[];
extern const char ty_page_js[];
extern const char ty_charts_js[]; /* "" in a build without charts */
extern const char ty_charts_notices[];

/** Text with the five characters escaped that HTML gives a meaning; NULL adds nothing. */
void ty_html_escape(ty_text *html, const char *text);

/** The timeline section: for each shown rank and stream, prediction above measurement. */
ty_status ty_html_timeline(const ty_report_input *input, ty_text *html,
                           ty_error *error) TY_MUST_CHECK;

#endif
