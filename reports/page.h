/**
 * @file page.h
 * The HTML report while it is being written: sections, tables, and charts with their tables. A
 * chart is written twice from the same figures, as a table for everybody and as data for the page's
 * script, which draws it (page.js). Without the charts in this build the tables stand alone.
 * Internal to reports/.
 */
#ifndef TY_REPORTS_PAGE_H
#define TY_REPORTS_PAGE_H

#include "ty_reports.h"

#define PAGE_MOST_SECTIONS 32

typedef struct page_section {
    const char *id, *title;
    const char *filled_by; /* NULL: it is there; else what would fill it */
} page_section;

/** What a cluster costs by the hour, as a trainyard.score/1 says; NaN: not known. */
typedef struct page_bill {
    double usd_per_hour, power_w;
} page_bill;

typedef struct page {
    const ty_report_input *in;
    const ty_step_summary *prediction; /* that the whole page speaks of; NULL: without a plan */
    const ty_step_summary *other_prediction; /* of the plan beside it */
    ty_step_summary simulated[2]; /* of plans that came without a simulation of their own */
    page_bill bill;               /* of the plan's cluster */
    ty_text *html;                /* of the body; sections append here */
    ty_json_writer json;          /* of the charts' data: an object, open */
    bool has_charts;
    bool is_open; /* a section is */
    page_section sections[PAGE_MOST_SECTIONS];
    uint32_t section_count;
} page;

/** Text with the five characters escaped that HTML gives a meaning; NULL adds nothing. */
void ty_html_escape(ty_text *html, const char *text);

/** Begins a section, ending the one before. @param id, title static */
void ty_page_section(page *p, const char *id, const char *title);
/** Notes that a section is not there, and what would fill it. */
void ty_page_missing(page *p, const char *title, const char *filled_by);
void ty_page_end_section(page *p);
/** A paragraph of escaped text. */
void ty_page_note(page *p, const char *text);

/* ---- Tables -------------------------------------------------------------------------------- */

/** @param headings separated by '|'; one that starts with '<' is of a column of text */
void ty_page_table(page *p, const char *headings);
void ty_page_row(page *p);
/** A cell of text, escaped, or of a number that was formatted. */
void ty_page_text(page *p, const char *text);
void ty_page_number(page *p, const char *text);
void ty_page_end_row(page *p);
void ty_page_end_table(page *p);

/* ---- Charts -------------------------------------------------------------------------------- */

/** What figures are in, which decides how they are written. */
typedef enum page_unit {
    PAGE_SECONDS,
    PAGE_BYTES,  /* decimal */
    PAGE_MEMORY, /* binary */
    PAGE_COUNT,
    PAGE_SHARE, /* 1 is 100 % */
    PAGE_USD,
    PAGE_ENERGY, /* joules, shown in Wh, kWh, MWh */
    PAGE_POWER,  /* watts */
    PAGE_FACTOR,
    PAGE_RATE /* bytes a second */
} page_unit;
/** A figure for people; "–" for NaN. */
void ty_page_format(page_unit unit, double value, char out[40]);

/**
 * Opens a chart: a picture with a caption, and the chart's object in the data. The caller then puts
 * what the kind needs into p->json, writes tables (which go below the picture, in a disclosure),
 * and ends the chart.
 * @param kind        of page.js: bars, lines, scatter, heat, graph, timeline
 * @param alternative what is to be seen, for those who do not see it
 */
void ty_page_chart(page *p, const char *id, const char *kind, const char *caption,
                   const char *alternative);
/** Closes the chart's object and opens the disclosure for its tables. */
void ty_page_chart_table(page *p, const char *summary);
void ty_page_end_chart(page *p);

typedef struct page_series {
    const char *name;
    const double *values;     /* [count]; NaN: none */
    const double *low, *high; /* a band; NULL: none */
    const char *colour;       /* "#rrggbb"; NULL: the next of the palette */
    bool is_dashed;
} page_series;

/** Stacked bars over categories, or lines over numbers or categories; with its table. */
typedef struct page_plot {
    const char *id, *caption, *alternative;
    const char *x_name;            /* heading of the categories */
    const char *const *categories; /* [count]; NULL: `x` */
    const double *x;
    page_unit x_unit, unit;
    const char *y_name;
    size_t count;
    const page_series *series;
    uint32_t series_count;
    bool is_line, is_log_x, is_log_y, is_stacked;
    double limit; /* a line across: of bars, among their figures; of lines, on the abscissa */
    const char *limit_name;
} page_plot;
void ty_page_plot(page *p, const page_plot *plot);

/* ---- Sections, in the order of the page ---------------------------------------------------- */

ty_status ty_page_verdict(page *p, ty_error *error) TY_MUST_CHECK;
/** One figure of a verdict, in a list of class "cards". */
void ty_page_card(ty_text *html, const char *label, const char *value);
/** What a page of phases begins with, and a row for each. @param root `trainyard.phased-plan/1` */
ty_status ty_page_phases_verdict(page *p, const ty_json *root, ty_error *error) TY_MUST_CHECK;
ty_status ty_page_phases(page *p, const ty_json *root, ty_error *error) TY_MUST_CHECK;
/** A section of the words that the page so far and `verdict` use and that
 * docs/reference/glossary.md explains; none where none is. */
ty_status ty_page_glossary(page *p, const ty_text *verdict, ty_error *error) TY_MUST_CHECK;
/** The plan beside another one; nothing where there is none. */
void ty_page_versus(page *p);
void ty_page_breakdown(page *p);
ty_status ty_page_timeline(page *p, ty_error *error) TY_MUST_CHECK;
void ty_page_errors(page *p);
void ty_page_memory(page *p);
/** Continues the section on memory. */
ty_status ty_page_memory_curves(page *p, ty_error *error) TY_MUST_CHECK;
ty_status ty_page_network(page *p, ty_error *error) TY_MUST_CHECK;
void ty_page_search(page *p);
/** What a trainyard.whatif/1 found, in a sentence; nothing of one that cannot be read. */
void ty_page_whatif_answer(page *p, const ty_report_document *document);
ty_status ty_page_whatif(page *p, ty_error *error) TY_MUST_CHECK;
void ty_page_loss(page *p, const ty_json *score);
void ty_page_cost(page *p, const ty_json *score);
ty_status ty_page_documents(page *p, ty_error *error) TY_MUST_CHECK;
void ty_page_provenance(page *p);

/** The first document of a schema; NULL: none. */
const ty_report_document *ty_page_document(const page *p, const char *schema);

/** @param score of a trainyard.score/1; NULL: nothing is known */
page_bill ty_page_bill(const ty_json *score);
/** Money and energy of so many seconds; NaN where nothing is known. */
double ty_page_usd(const page_bill *bill, double seconds);
double ty_page_energy_j(const page_bill *bill, double seconds);
/** Bytes of the fullest device; 0: not counted. */
uint64_t ty_page_peak_bytes(const ty_plan *plan);
/**
 * The first position of the pipeline that a position is like: as many layers, replicas and bytes of
 * every purpose, recomputed alike. Itself, where none before is.
 */
uint32_t ty_page_alike_position(const ty_plan *plan, uint32_t position);
/** The smallest memory among the devices of a plan; 0: not known. */
double ty_page_capacity(const ty_plan *plan, const ty_cluster *cluster);

/** What steps are made of, averaged over ranks; in the order of the picture. */
typedef struct page_part {
    const char *name, *colour;
    double (*share)(const ty_step_summary *s);
} page_part;
#define PAGE_PART_COUNT 5
extern const page_part ty_page_parts[PAGE_PART_COUNT];

/** What memory is for. */
typedef struct page_purpose {
    const char *name;
    uint64_t (*bytes)(const ty_memory_use *use);
} page_purpose;
#define PAGE_PURPOSE_COUNT 7
extern const page_purpose ty_page_purposes[PAGE_PURPOSE_COUNT];

#endif
