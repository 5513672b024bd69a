// Nearly empty, to time the launch around a kernel.

extern "C" __global__ void empty() {}

// Shows the host that the kernel has begun, through pinned memory that both see.
extern "C" __global__ void raise_flag(volatile int* flag, int value) {
    *flag = value;
    __threadfence_system();
}
