/**
 * @file series.h
 * Series of measurements: one network, device and software, on more and more devices. What the
 * fewest took tells what one device does; the others are predicted from it. Internal.
 */
#ifndef TY_SERIES_H
#define TY_SERIES_H

#include "ty_validate.h"

/** Of a benchmark whose rules fix the network and the target, and whose log has the steps: runs on
 * one kind of device are a series, whatever their batches. */
bool ty_is_benchmark_time(const ty_record *record);
/** Seconds of such a run's step, what it evaluates among them; 0 of other records. */
double ty_benchmark_step_s(const ty_record *record);
/** Whether it has the devices and the batch of what its series is predicted from. */
bool ty_runs_again(const ty_record *record, const ty_record *baseline);
/** Samples a device takes in one pass; 0 where it is not stated. */
double ty_batch_per_device(const ty_record *record);
/** The record of the series with the fewest devices, the first such one; `index` itself where no
 * other is of its series. */
uint32_t ty_baseline_of(const ty_records *records, uint32_t index);

#endif
