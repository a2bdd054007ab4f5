# cuda_stub_tests.cmake -- the tests of what cuda_stub.cmake builds.

if(NOT TARGET plimsoll_stub OR NOT Python3_FOUND)
    return()
endif()
set(stub_tests ${CMAKE_SOURCE_DIR}/tests/cuda_stub)
if(CMOCKA_INCLUDE AND CMOCKA_LIBRARY)
    add_executable(test_cuda_stub ${stub_tests}/test_cuda_stub.c)
    target_compile_definitions(test_cuda_stub PRIVATE _GNU_SOURCE) # dlvsym
    target_include_directories(test_cuda_stub PRIVATE include)
    target_include_directories(test_cuda_stub SYSTEM PRIVATE ${CMOCKA_INCLUDE})
    target_link_libraries(test_cuda_stub PRIVATE plim_flags plimsoll_static ${CMOCKA_LIBRARY} ${CMAKE_DL_LIBS}
                          Threads::Threads)
    add_dependencies(test_cuda_stub plimsoll_stub ${stubs})
    add_test(NAME cuda_stub.libraries COMMAND test_cuda_stub ${stub_out} ${stub_dir}/names)
endif()
# gpustat and nvitop take part where they are installed.
add_test(NAME cuda_stub.monitors
         COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/live/monitors.py
                 $<TARGET_FILE:plimsoll> ${stub_out})
set_tests_properties(cuda_stub.monitors PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME cuda_stub.run
         COMMAND ${Python3_EXECUTABLE} ${stub_tests}/run.py $<TARGET_FILE:plimsoll>)
add_test(NAME cuda_stub.llama
         COMMAND ${Python3_EXECUTABLE} ${stub_tests}/llama.py ${stub_out})
add_test(NAME cuda_stub.routes
         COMMAND ${Python3_EXECUTABLE} ${stub_tests}/routes.py $<TARGET_FILE:plimsoll>)
set_tests_properties(cuda_stub.run cuda_stub.llama cuda_stub.routes
                     PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
add_test(NAME cuda_stub.words COMMAND ${Python3_EXECUTABLE} ${stub_tests}/words.py)
