/* A stage's streams: the device's clock, waiting, and cuDNN on the stream of the passes. */
#include "cuda_stage.h"

ty_status cuda_clock_mark(const ty_stage_device *stage, int which, cudaStream_t stream,
                          ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->own->is_timed)
        CUDA_CHECK(cudaEventRecordWithFlags(stage->own->clock[which], stream,
                                            stage->own->is_recording ? cudaEventRecordExternal
                                                                     : cudaEventRecordDefault),
                   status, done);
done:
    return status;
}

/* The side stream is idle, so its mark is immediate. A pass marks its own start. */
ty_status cuda_use(const ty_stage_device *stage, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaSetDevice(stage->own->ordinal), status, done);
    status = cuda_clock_mark(stage, CUDA_CLOCK_START, stage->own->side, error);
done:
    return status;
}

/* Reports failed launches, then errors of running kernels. */
ty_status cuda_stream_wait(cudaStream_t stream, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaGetLastError(), status, done);
    CUDA_CHECK(cudaStreamSynchronize(stream), status, done);
done:
    return status;
}

ty_status cuda_pass_wait(const ty_stage_device *stage, ty_error *error)
{
    ty_status status = cuda_clock_mark(stage, CUDA_CLOCK_STOP, stage->own->stream, error);

    return status == TY_OK ? cuda_stream_wait(stage->own->stream, error) : status;
}

ty_status cuda_side_wait(const ty_stage_device *stage, ty_error *error)
{
    ty_status status = cuda_clock_mark(stage, CUDA_CLOCK_STOP, stage->own->side, error);

    return status == TY_OK ? cuda_stream_wait(stage->own->side, error) : status;
}

ty_status cuda_dnn_open(ty_stage_device *stage, ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->own->dnn_handle != NULL)
        return TY_OK;
    TY_CHECK(cuda_dnn_load(&stage->own->dnn, error), status, done);
    CUDA_DNN_CHECK(stage->own->dnn->cudnnCreate(&stage->own->dnn_handle), status, done);
    CUDA_DNN_CHECK(stage->own->dnn->cudnnSetStream(stage->own->dnn_handle, stage->own->stream),
                   status, done);
done:
    return status;
}
