/** @file html_timeline.h  What the pictures of one step share. Internal to reports/. */
#ifndef TY_REPORTS_HTML_TIMELINE_H
#define TY_REPORTS_HTML_TIMELINE_H

#include "page.h"
#include "partners.h"

#define TIMELINE_FEW_RANKS 8 /* so many are all shown */
#define TIMELINE_MOST_RANKS 16

extern const char *const ty_op_colours[TY_OP_COUNT];

/** One step of a timeline and when it began. */
typedef struct timeline_step {
    const ty_timeline *timeline;
    uint32_t step;
    double start_s, end_s;
} timeline_step;

typedef struct timeline_view {
    const ty_report_input *input;
    partners *partners;
    ty_text *html;
    uint32_t ranks[TIMELINE_MOST_RANKS];
    uint32_t rank_count;
    bool has_stream[TIMELINE_MOST_RANKS][TY_STREAM_COUNT];
    bool has_op[TY_OP_COUNT];
    timeline_step predicted, measured; /* the latter only where one was recorded */
    double length_s;                   /* what the width stands for */
    double least_s;                    /* shorter bars are not drawn in the plain picture */
} timeline_view;

/* html_gantt.c; `measured` may be NULL. */

/** Opens the timeline's figure with the chart's data; the caller closes it. */
ty_status ty_page_gantt(page *p, const timeline_view *v, const timeline_step *measured,
                        ty_error *error) TY_MUST_CHECK;
/** Seconds of the compute stream of every shown rank, by operation and by what it waited for. */
ty_status ty_page_stage_parts(page *p, const timeline_view *v, const timeline_step *measured,
                              ty_error *error) TY_MUST_CHECK;
/** What the critical path of the predicted step is made of. */
ty_status ty_page_critical_path(page *p, const timeline_view *v, ty_error *error) TY_MUST_CHECK;

#endif
