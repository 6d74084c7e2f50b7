// The runtime as one translation unit, so that the scheduler inlines into the barriers.
#include "async_copy.cpp"
#include "barrier.cpp"
#include "fault.cpp"
#include "fiber.cpp"
#include "launch.cpp"
#include "pool.cpp"
#include "scheduler.cpp"
#include "warp.cpp"
