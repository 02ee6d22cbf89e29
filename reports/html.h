/**
 * @file html.h
 * The HTML report is a template with one JSON document, `trainyard.report/1`, which the template's
 * script draws. The functions below write members of that document into an open object. Internal to
 * reports/.
 */
#ifndef TY_REPORTS_HTML_H
#define TY_REPORTS_HTML_H

#include "ty_reports.h"

extern const char ty_report_template[]; /* template/report.html */
extern const char ty_report_style[];    /* template/report.css */
extern const char ty_report_script[];   /* template/report.js */
extern const char ty_report_glossary[]; /* docs/reference/glossary.md */

/** Writes a string member; nothing for NULL and "". */
void ty_report_put_text(ty_json_writer *w, const char *key, const char *text);
/** Writes a text as a string member and clears it; passes a failed append on. */
void ty_report_put_taken(ty_json_writer *w, const char *key, ty_text *text);
/** Writes a number with seven digits; null if it is not finite. */
void ty_report_put_figure(ty_json_writer *w, const char *key, double value);

/** Writes a row, an array with a value per letter: 's' text, 'u' uint32_t, 'l' uint64_t, 'f'
 * figure. */
void ty_report_put_row(ty_json_writer *w, const char *kinds, ...);

/** Writes the member `key`: a plan with its stages, memory and candidates. @param cluster may be
 * NULL */
void ty_report_put_plan(const ty_plan *plan, const ty_cluster *cluster, ty_json_writer *w,
                        const char *key);
/** Writes the member "run": losses, evaluations, provenance. */
void ty_report_put_run(const ty_run *run, ty_json_writer *w);
/**
 * Writes the member "timeline": one step, predicted and measured, with one stage replica per stage
 * and device type; stage parts and critical path. Nothing without a timeline.
 * @return TY_EPARSE for timelines of another program
 */
ty_status ty_report_put_timeline(const ty_report_input *in, ty_json_writer *w,
                                 ty_error *error) TY_MUST_CHECK;
/** Writes the member "network": the cluster with the load of its links, and the traffic matrix.
 * Nothing without costs, or for clusters too large to count routes. */
ty_status ty_report_put_network(const ty_report_input *in, double step_time_s, ty_json_writer *w,
                                ty_error *error) TY_MUST_CHECK;
/**
 * Writes the members "files" and "documents": the files that were read, and the parts that the
 * script shows.
 * @return TY_EPARSE for a document that violates its schema
 */
ty_status ty_report_put_documents(const ty_report_input *in, ty_json_writer *w,
                                  ty_error *error) TY_MUST_CHECK;
/** Copies a value without the large members that no report shows (layers, devices, timelines,
 * ...). */
void ty_report_put_copy(ty_json_writer *w, const char *key, const ty_json *value);

#endif
