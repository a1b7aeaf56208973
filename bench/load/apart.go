package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"portolan.dev/portolan/bench/rig"
)

// RunApart is like Run, in a separate process (the generator) on one processor. It
// returns an error if no query was answered.
func (c *Config) RunApart(ctx context.Context, generator string, cpu int) (*Result, error) {
	in, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, generator)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &stdout, &stderr
	ended := make(chan error)
	go func() {
		err := rig.StartOn(cmd, []int{cpu})
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &stderr)
	}
	result := new(Result)
	if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
		return nil, err
	}
	if result.Answered == 0 {
		return nil, errors.New("no answer")
	}
	return result, nil
}
